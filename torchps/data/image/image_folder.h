#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/data/image/decode_image.h"

namespace torchps {

// Images of one size with a class each, as bytes. The image readers return this type; it does not
// depend on torch.
struct ImageSet {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  // Image by image, then channel by channel, then row by row.
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  bool has_answers = true;  // if false, all labels are 0

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  int64_t image_bytes() const { return channels * height * width; }

  // Keeps the first `samples` images; 0 keeps all.
  void Limit(int64_t samples) {
    if (samples <= 0 || samples >= size()) return;
    labels.resize(samples);
    pixels.resize(samples * image_bytes());
  }
};

// Lists image files: by class, as FOLDER/CLASS/*.jpg, or without classes. Suffixes are jpg, jpeg,
// jpe, jfif, pjpeg, pjp and png, in upper or lower case. LoadImage reads a file.
struct ImageFolder {
  struct File {
    std::string name;    // relative to `directory`
    int32_t label = -1;  // -1: the file does not belong to a class
  };

  std::string directory;
  std::vector<std::string> classes;  // the folder names, in byte order
  std::vector<File> files;           // sorted by class, then by name
  int64_t passed_over = 0;           // files outside a class folder or with another suffix

  int64_t size() const { return static_cast<int64_t>(files.size()); }
  std::string MakePath(int64_t index) const;
  // Returns the names of all files.
  std::vector<std::string> Names() const;

  // Keeps `samples` evenly spaced files, so that the class proportions stay the same; 0 keeps all.
  void Limit(int64_t samples);
};

// Reads the names in `directory`, which contains a folder for each class. Ignores hidden files and
// __MACOSX. Counts files outside a class folder and files that are not images in `passed_over`.
//
// NOT_FOUND: the folder does not exist. INVALID_ARGUMENT: there are fewer classes than
// `least_classes`, a class without images, an image in an unsupported format, or a folder below a
// class folder. Also returns system errors.
absl::StatusOr<ImageFolder> ReadImageFolder(const std::string& directory, size_t least_classes = 2);

// Reads the test images in `directory`: those in test/, or in val/ if test/ is missing or does not
// contain folders. NOT_FOUND: both are missing. Also returns ReadImageFolder's errors.
absl::StatusOr<ImageFolder> ReadTestImageFolder(const std::string& directory,
                                                size_t least_classes = 2);

// Returns INVALID_ARGUMENT unless both contain the same classes.
absl::Status CheckSameClasses(const ImageFolder& train, const ImageFolder& test);

// Reads file names without classes. `path` is an image file or a folder. The image files in a
// folder and the subfolders are sorted by name. NOT_FOUND: `path` does not exist. INVALID_ARGUMENT:
// there are no images, or an image is in an unsupported format. Also returns system errors.
absl::StatusOr<ImageFolder> ReadUnlabelledImages(const std::string& path);

// Reads image `index` of `folder`, stretched to `size`, into `planes`: channel by channel, then row
// by row. Returns the errors of ReadFileBytes and DecodeImage, with the file's name.
absl::Status LoadImage(const ImageFolder& folder, int64_t index, const ImageSize& size,
                       uint8_t* planes);

}  // namespace torchps
