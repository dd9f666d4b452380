#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "torchps/data/image/image_folder.h"

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

// Reads CIFAR-10's binary version (A. Krizhevsky, 2009): records of one label byte and 3 x 32 x 32
// pixels, channel after channel. Concatenates `files` in `directory`, plain or gzip. The training
// set is data_batch_1.bin to data_batch_5.bin; the test set is test_batch.bin.
//
// NOT_FOUND: a file is missing. DATA_LOSS: a file is empty, or does not contain a whole number of
// records. INVALID_ARGUMENT: a label is above 9.
absl::StatusOr<ImageSet> ReadCifar10(const std::string& directory,
                                     const std::vector<std::string>& files);

absl::StatusOr<ImageSet> ReadCifar10Train(const std::string& directory);
absl::StatusOr<ImageSet> ReadCifar10Test(const std::string& directory);

}  // namespace torchps
