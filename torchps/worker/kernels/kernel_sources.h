#pragma once

#include <vector>

namespace torchps {

// Source text of one kernel header, and the name for including it.
struct KernelSource {
  const char* name;
  const char* text;
};

// Returns the headers as they were when this program was built. The program itself includes the
// same files. Thread-safe.
const std::vector<KernelSource>& KernelSources();

}  // namespace torchps
