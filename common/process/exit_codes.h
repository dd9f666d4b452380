#pragma once

#include "absl/status/status.h"

namespace torchps {

// What a process of ours exits with; scripts and psctl read them, docs/operate.md lists them.
enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,        // something of ours went wrong, or the run was cut short
  kUsage = 2,         // a flag, a job field or a peer's argument is not valid
  kUnreachable = 3,   // a server did not answer within the patience given
  kRefused = 4,       // another job, layout or protocol; not permitted
  kData = 5,          // a data file is missing, truncated or damaged
  kAddressInUse = 6,  // the port to listen on is taken
  kLostSlot = 7,      // a worker was away for longer than its lease: its slot is no longer its own
  kDiverged = 8,      // the job has ended, and what it has learnt is of no use: not finite
};

// The exit code that belongs to an error's status code.
ExitCode ExitCodeFor(const absl::Status& status);

}  // namespace torchps
