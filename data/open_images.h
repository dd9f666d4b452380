#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "proto/job.pb.h"

namespace torchps {

// The data sources whose samples are images, as OpenData describes them. All but "images" are read
// into memory; that one's test set is in `directory`/test or `directory`/val.
absl::StatusOr<DataSource> OpenDigits(const JobSpec& job);
absl::StatusOr<DataSource> OpenIdx(const JobSpec& job, const std::string& directory);
absl::StatusOr<DataSource> OpenCifar10(const JobSpec& job, const std::string& directory);
absl::StatusOr<DataSource> OpenImageFolder(const JobSpec& job, const std::string& directory);

}  // namespace torchps
