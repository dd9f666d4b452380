#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "proto/job.pb.h"

namespace torchps {

// The data sources that a language model learns from, as OpenData describes them: "text", by bytes
// and in memory, and "tokens", of train.bin and val.bin in `directory`. With data.use PREDICTION
// and without a path they are one sample of zeros, in the shape that the model was trained on.
absl::StatusOr<DataSource> OpenText(const JobSpec& job, const std::string& path);
absl::StatusOr<DataSource> OpenTokens(const JobSpec& job, const std::string& directory);

}  // namespace torchps
