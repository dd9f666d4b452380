#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/download/download.h"

namespace torchps {

// The four files of MNIST (Y. LeCun, C. Cortes, C. Burges) as first published, gzip.
std::vector<RemoteFile> MnistFiles();

// Public copies of MNIST that have been there for years: PyTorch's and TensorFlow's.
std::vector<std::string> MnistMirrors();

// Fetches MNIST into `directory`, ready for data.source "idx". `options.mirrors` left empty stands
// for MnistMirrors(). Status codes: those of DownloadFiles.
absl::Status DownloadMnist(const std::string& directory, DownloadOptions options);

// What --download of the programs does for a job whose data.source is `source`: fetches MNIST into
// `path`, --data or data.path, or where that is empty into mnist/ of this machine's cache. Returns
// the directory. INVALID_ARGUMENT: another source. Others: those of CacheFolder and DownloadFiles.
absl::StatusOr<std::string> DownloadForJob(const std::string& source, const std::string& path,
                                           DownloadOptions options);

}  // namespace torchps
