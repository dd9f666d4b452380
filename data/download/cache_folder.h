#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace torchps {

// Where this user keeps what was downloaded, so that it is once per machine: $TORCHPS_CACHE; else
// torchps/ in $XDG_CACHE_HOME; else ~/.cache/torchps. `environment` is std::getenv, but for tests.
//
// FAILED_PRECONDITION: none of the three variables is set to an absolute path; $HOME is the third.
absl::StatusOr<std::string> CacheFolder(
    const std::function<const char*(const char* name)>& environment);
absl::StatusOr<std::string> CacheFolder();

// MNIST's directory in the cache, which need not exist. Errors: those of CacheFolder().
absl::StatusOr<std::string> MnistFolder();

}  // namespace torchps
