#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/image/image_folder.h"

namespace torchps {

// Reads images and labels in IDX files, the format of MNIST and similar datasets (Y. LeCun, "THE
// MNIST DATABASE of handwritten digits"): big-endian magic 0x00000803 (images: count, height,
// width, then bytes) or 0x00000801 (labels: count, then bytes). Plain or gzip. Without
// `labels_path` the images do not have answers.
//
// NOT_FOUND: a file is missing. DATA_LOSS: the magic is wrong, the sizes do not match the file
// size, or the number of labels differs from the number of images. INVALID_ARGUMENT: there are no
// images, or they are larger than 4096 x 4096.
absl::StatusOr<ImageSet> ReadIdxImages(const std::string& images_path,
                                       const std::string& labels_path = "");

// Reads the pair `<prefix>-images-idx3-ubyte[.gz]`, `<prefix>-labels-idx1-ubyte[.gz]` in
// `directory`. MNIST's prefixes are "train" and "t10k". NOT_FOUND: the message lists the expected
// names.
absl::StatusOr<ImageSet> ReadIdxDirectory(const std::string& directory, const std::string& prefix);

}  // namespace torchps
