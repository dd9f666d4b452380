#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace torchps {

// Identifies the block versions that a vector of values contains after earlier pulls, so that a
// pull can skip unchanged blocks. Keep one with each vector. Clear it when the vector's trained
// part is written by anything but a pull. Empty initially. Thread-compatible.
struct CachedVersions {
  // By block; empty if the versions are unknown.
  std::vector<Version> versions;
  // By server: the incarnation that reported these versions. Restarted servers restart the version
  // count.
  std::vector<uint64_t> incarnations;

  void Clear() {
    versions.clear();
    incarnations.clear();
  }
};

}  // namespace torchps
