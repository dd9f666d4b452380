#pragma once

#include <vector>

namespace torchps {

// A header that the kernels consist of, and the name by which it is included.
struct KernelSource {
  const char* name;
  const char* text;
};

// All of them, as they stood when this program was built: the same files that its own code has
// included. Thread-safe.
const std::vector<KernelSource>& KernelSources();

}  // namespace torchps
