#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace torchps {

// What a vector of values holds from the pulls into it, so that a pull need not bring again what
// has not changed since: one goes with each vector, wherever that goes, and is cleared by whoever
// writes into the vector's trained part. A new one holds nothing. Thread-compatible.
struct CachedVersions {
  // By block; empty: nothing is known.
  std::vector<Version> versions;
  // By server: the life in which its blocks had these versions. A restarted server counts anew.
  std::vector<uint64_t> incarnations;

  void Clear() {
    versions.clear();
    incarnations.clear();
  }
};

}  // namespace torchps
