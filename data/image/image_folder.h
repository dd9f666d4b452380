#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/image/decode_image.h"

namespace torchps {

// A folder of image files by class: FOLDER/CLASS/*.jpg, *.jpeg and *.png, in upper or lower case.
// Only names are held; LoadImage reads a file.
struct ImageFolder {
  struct File {
    std::string name;  // in its class's folder
    int32_t label = 0;
  };

  std::string directory;
  std::vector<std::string> classes;  // the folders' names, ordered by their bytes
  std::vector<File> files;           // class after class, ordered by names within

  int64_t size() const { return static_cast<int64_t>(files.size()); }
  std::string PathOf(int64_t index) const;

  // Keeps `samples` files, evenly spread, so that every class keeps its share; 0 keeps all.
  void Limit(int64_t samples);
};

// Hidden files, and files that are no images by their name, are passed over; that of another kind
// of image is an error, for it would be missed.
//
// NOT_FOUND: no such folder. INVALID_ARGUMENT: fewer than two classes, a class without an image, an
// image that is neither JPEG nor PNG, a folder below a class's. Others as the system says.
absl::StatusOr<ImageFolder> ReadImageFolder(const std::string& directory);

// The folder test/ or, where there is none, val/ of `directory`; its classes must be those of
// `train`. Errors: those of ReadImageFolder; INVALID_ARGUMENT: other classes.
absl::StatusOr<ImageFolder> ReadTestImageFolder(const std::string& directory,
                                                const ImageFolder& train);

// Reads image `index` of `folder`, stretched to `size`, into `planes`: channel after channel, row
// after row. Errors: those of ReadFileBytes and DecodeImage, with the file's name.
absl::Status LoadImage(const ImageFolder& folder, int64_t index, const ImageSize& size,
                       uint8_t* planes);

}  // namespace torchps
