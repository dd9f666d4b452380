#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "proto/job.pb.h"

namespace torchps {

// The data sources whose samples are images, as OpenData describes them. All but "images" are read
// into memory. With PREDICTION the path is an image file, a folder of image files, or a file in the
// source's format; the images need no answers.
absl::StatusOr<DataSource> OpenDigits(const JobSpec& job, const std::string& path);
absl::StatusOr<DataSource> OpenIdx(const JobSpec& job, const std::string& directory);
absl::StatusOr<DataSource> OpenCifar10(const JobSpec& job, const std::string& directory);
absl::StatusOr<DataSource> OpenImageFolder(const JobSpec& job, const std::string& directory);

}  // namespace torchps
