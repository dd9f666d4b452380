#include "data/download/mnist_download.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "data/download/cache_folder.h"

namespace torchps {

std::vector<RemoteFile> MnistFiles() {
  return {
      {"train-images-idx3-ubyte.gz", 9912422,
       "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
      {"train-labels-idx1-ubyte.gz", 28881,
       "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
      {"t10k-images-idx3-ubyte.gz", 1648877,
       "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
      {"t10k-labels-idx1-ubyte.gz", 4542,
       "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
  };
}

std::vector<std::string> MnistMirrors() {
  return {"https://ossci-datasets.s3.amazonaws.com/mnist/",
          "https://storage.googleapis.com/cvdf-datasets/mnist/"};
}

absl::Status DownloadMnist(const std::string& directory, DownloadOptions options) {
  if (options.mirrors.empty()) options.mirrors = MnistMirrors();
  return DownloadFiles(directory, MnistFiles(), options);
}

absl::StatusOr<std::string> DownloadForJob(const std::string& source, const std::string& path,
                                           DownloadOptions options) {
  if (source != "idx") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--download fetches MNIST, so it needs data.source \"idx\", not \"", source, "\""));
  }
  std::string directory = path;
  if (directory.empty()) {
    const absl::StatusOr<std::string> cached = MnistFolder();
    if (!cached.ok()) return cached.status();
    directory = *cached;
  }
  const absl::Status fetched = DownloadMnist(directory, std::move(options));
  if (!fetched.ok()) return fetched;
  return directory;
}

}  // namespace torchps
