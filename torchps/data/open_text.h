#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "torchps/data/dataset.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Open the data sources for language models, as described at OpenData. "text" reads bytes into
// memory; "tokens" reads train.bin and val.bin in `directory`. With data.use PREDICTION and without
// a path they return one sample of zeros, in the shape that the model was trained on.
absl::StatusOr<DataSource> OpenText(const JobSpec& job, const std::string& path);
absl::StatusOr<DataSource> OpenTokens(const JobSpec& job, const std::string& directory);

}  // namespace torchps
