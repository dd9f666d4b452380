#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "proto/job.pb.h"

namespace torchps {

// data.source "csv", as OpenData describes it: rows of `path`, split into training and test set by
// the job's seed.
absl::StatusOr<DataSource> OpenCsv(const JobSpec& job, const std::string& path);

}  // namespace torchps
