#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/image/decode_image.h"

namespace torchps {

// Names of image files: by class, as FOLDER/CLASS/*.jpg, or without classes. Endings are jpg, jpeg,
// jpe, jfif, pjpeg, pjp and png, in upper or lower case. LoadImage reads a file.
struct ImageFolder {
  struct File {
    std::string name;    // relative to `directory`
    int32_t label = -1;  // -1: the file has no class
  };

  std::string directory;
  std::vector<std::string> classes;  // the folders' names, sorted by bytes
  std::vector<File> files;           // class after class, sorted by names within
  int64_t passed_over = 0;           // files outside a class's folder or without such an ending

  int64_t size() const { return static_cast<int64_t>(files.size()); }
  std::string MakePath(int64_t index) const;
  // Returns the names of all files.
  std::vector<std::string> Names() const;

  // Keeps `samples` files, evenly spread, so that every class keeps its share; 0 keeps all.
  void Limit(int64_t samples);
};

// Reads the names in `directory`, which has a folder for each class. Ignores hidden files and
// __MACOSX, and counts other files that are no images of a class.
//
// NOT_FOUND: no such folder. INVALID_ARGUMENT: fewer classes than `least_classes`, a class without
// an image, an image in a format that is not decoded, a folder below a class's. Others as the
// system says.
absl::StatusOr<ImageFolder> ReadImageFolder(const std::string& directory, size_t least_classes = 2);

// Reads the test images in `directory`: those in test/, or in val/ where test/ is missing or has no
// folders. NOT_FOUND: both are missing. Errors of ReadImageFolder.
absl::StatusOr<ImageFolder> ReadTestImageFolder(const std::string& directory,
                                                size_t least_classes = 2);

// Returns INVALID_ARGUMENT unless both have the same classes.
absl::Status CheckSameClasses(const ImageFolder& train, const ImageFolder& test);

// Reads names without classes. `path` is an image file, or a folder. Its image files, also those in
// folders below it, are sorted by their names. NOT_FOUND: no such path. INVALID_ARGUMENT: no image,
// or one in a format that is not decoded. Others as the system says.
absl::StatusOr<ImageFolder> ReadUnlabelledImages(const std::string& path);

// Reads image `index` of `folder`, stretched to `size`, into `planes`: channel after channel, row
// after row. Errors: those of ReadFileBytes and DecodeImage, with the file's name.
absl::Status LoadImage(const ImageFolder& folder, int64_t index, const ImageSize& size,
                       uint8_t* planes);

}  // namespace torchps
