#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "common/ids.h"
#include "common/stop_latch.h"
#include "proto/job.pb.h"

namespace torchps {

// What the worker programs of the nemesis have in common: SERVERS SLOT JOURNAL LEVEL [HOW], and
// that they work until SIGTERM, or until their standard input ends.

struct NemesisArguments {
  std::vector<std::string> servers;
  SlotId slot = 0;
  std::string journal;
  DurabilitySpec::Level level = DurabilitySpec::NONE;
  std::string how;  // empty: not given
};

// Nothing where they are no such words.
absl::optional<NemesisArguments> ParseNemesisArguments(int argc, char** argv);

// Works on a thread of its own until it returns, which it is to do soon after the latch has been
// stopped. `is_broken` is to be set where the link of its device has failed. Returns the process's
// exit code, and logs what went wrong.
int RunNemesisProgram(
    const std::function<absl::Status(StopLatch* stop, std::atomic<bool>* is_broken)>& work,
    const std::function<void(const std::string& line)>& log);

}  // namespace torchps
