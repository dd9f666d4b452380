#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "data/download/download.h"

namespace torchps {

// The four files of MNIST (Y. LeCun, C. Cortes, C. Burges) as first published, gzip.
std::vector<RemoteFile> MnistFiles();

// Public copies of MNIST that have been there for years: PyTorch's and TensorFlow's.
std::vector<std::string> MnistMirrors();

// Fetches MNIST into `directory`, ready for data.source "idx". `options.mirrors` left empty stands
// for MnistMirrors(). Status codes: those of DownloadFiles.
absl::Status DownloadMnist(const std::string& directory, DownloadOptions options);

}  // namespace torchps
