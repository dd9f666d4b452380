#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "torchps/data/dataset.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Opens data.source "csv", as described at OpenData: the rows of `path`, split into training and
// test set with the job's seed.
absl::StatusOr<DataSource> OpenCsv(const JobSpec& job, const std::string& path);

}  // namespace torchps
