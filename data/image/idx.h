#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/image/image_set.h"

namespace torchps {

// Images and labels in IDX files, the format of MNIST and its relatives (Y. LeCun,
// "THE MNIST DATABASE of handwritten digits"): big-endian magic 0x00000803 (images: count, height,
// width, then bytes) or 0x00000801 (labels: count, then bytes). Plain or gzip.
//
// NOT_FOUND: a file is missing. DATA_LOSS: wrong magic, sizes that do not agree with the file's
// length, more or fewer labels than images. INVALID_ARGUMENT: no image, or one above 4096 x 4096.
// Without a `labels_path` the images have no answers.
absl::StatusOr<ImageSet> ReadIdxImages(const std::string& images_path,
                                       const std::string& labels_path = "");

// The pair `<prefix>-images-idx3-ubyte[.gz]`, `<prefix>-labels-idx1-ubyte[.gz]` of `directory`;
// MNIST's prefixes are "train" and "t10k". NOT_FOUND says which names were looked for.
absl::StatusOr<ImageSet> ReadIdxDirectory(const std::string& directory, const std::string& prefix);

}  // namespace torchps
