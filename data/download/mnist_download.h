#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/download/download.h"

namespace torchps {

// Returns the four files of MNIST (Y. LeCun, C. Cortes, C. Burges) as first published, in gzip
// format.
std::vector<RemoteFile> MnistFiles();

// Returns long-lived public mirrors of MNIST: PyTorch's and TensorFlow's.
std::vector<std::string> MnistMirrors();

// Downloads MNIST into `directory`, for data.source "idx". If `options.mirrors` is empty, uses
// MnistMirrors(). Returns DownloadFiles's errors.
absl::Status DownloadMnist(const std::string& directory, DownloadOptions options);

// Implements --download for a job with data.source `source`: downloads MNIST into `path` (--data or
// data.path), or into mnist/ in the cache folder if `path` is empty. Returns the directory.
// INVALID_ARGUMENT: the source does not support downloads. Also returns the errors of CacheFolder
// and DownloadFiles.
absl::StatusOr<std::string> DownloadForJob(const std::string& source, const std::string& path,
                                           DownloadOptions options);

}  // namespace torchps
