#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace torchps {

// Returns the folder for downloaded files, shared by all jobs of this user: $TORCHPS_CACHE; else
// $XDG_CACHE_HOME/torchps; else ~/.cache/torchps. `environment` is std::getenv, except in tests.
//
// FAILED_PRECONDITION: TORCHPS_CACHE, XDG_CACHE_HOME and HOME are all unset or not absolute paths.
absl::StatusOr<std::string> CacheFolder(
    const std::function<const char*(const char* name)>& environment);
absl::StatusOr<std::string> CacheFolder();

// Returns MNIST's folder in the cache, which may not exist. Returns CacheFolder()'s errors.
absl::StatusOr<std::string> MnistFolder();

}  // namespace torchps
