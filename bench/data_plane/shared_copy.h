#pragma once

#include "absl/status/status.h"
#include "bench/data_plane/scenario.h"

namespace torchps {

// The receiving end of shared_memory_copy: makes the memory, says where it is on standard output,
// and copies out what the sender copies in, until standard input ends.
absl::Status ServeSharedCopy(const Scenario& scenario);

}  // namespace torchps
