#pragma once

#include "absl/status/status.h"

namespace torchps {

// Exit codes of torchps processes. Scripts and psctl depend on them; docs/operate.md lists them.
enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,        // internal error, or the run was interrupted
  kUsage = 2,         // invalid flag, job field or request argument
  kUnreachable = 3,   // a server did not answer before the timeout
  kRefused = 4,       // different job, layout or protocol; permission denied
  kData = 5,          // a data file is missing, truncated or damaged
  kAddressInUse = 6,  // the listening port is already in use
  kLostSlot = 7,      // the worker's lease expired, and the worker lost its slot
  kDiverged = 8,      // the job ended with non-finite parameters
};

// Returns the exit code for the code of `status`.
ExitCode ExitCodeFor(const absl::Status& status);

}  // namespace torchps
