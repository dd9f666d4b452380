#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "torchps/data/dataset.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Open the data sources for images, as described at OpenData. All except "images" are read into
// memory. With PREDICTION the path is an image file, a folder of image files, or a file in the
// source's format; answers are optional.
absl::StatusOr<DataSource> OpenDigits(const JobSpec& job, const std::string& path);
absl::StatusOr<DataSource> OpenIdx(const JobSpec& job, const std::string& directory);
absl::StatusOr<DataSource> OpenCifar10(const JobSpec& job, const std::string& directory);
absl::StatusOr<DataSource> OpenImageFolder(const JobSpec& job, const std::string& directory);

}  // namespace torchps
