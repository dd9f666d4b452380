#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/image/image_folder.h"

namespace torchps {

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
