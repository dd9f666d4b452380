#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/image/image_set.h"

namespace torchps {

// CIFAR-10's binary version (A. Krizhevsky, 2009): records of one label byte and 3 x 32 x 32
// pixels, channel after channel. Reads `files` of `directory` one behind the other; the training
// set is data_batch_1.bin to data_batch_5.bin, the test set test_batch.bin. Plain or gzip.
//
// NOT_FOUND: a file is missing. DATA_LOSS: a file is not a whole number of records, at least one.
// INVALID_ARGUMENT: a label above 9.
absl::StatusOr<ImageSet> ReadCifar10(const std::string& directory,
                                     const std::vector<std::string>& files);

absl::StatusOr<ImageSet> ReadCifar10Train(const std::string& directory);
absl::StatusOr<ImageSet> ReadCifar10Test(const std::string& directory);

}  // namespace torchps
