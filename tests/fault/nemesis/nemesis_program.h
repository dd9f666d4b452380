#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "torchps/common/stop_latch.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// The common part of the nemesis' worker programs. Their arguments are SERVERS SLOT JOURNAL LEVEL
// [HOW]. They run until SIGTERM or until standard input ends.

struct NemesisArguments {
  std::vector<std::string> servers;
  SlotId slot = 0;
  std::string journal;
  DurabilitySpec::Level level = DurabilitySpec::NONE;
  std::string how;  // optional
};

// Returns nullopt if the arguments are not valid.
std::optional<NemesisArguments> ParseNemesisArguments(int argc, char** argv);

// Runs `work` in a thread until it returns. `work` must return soon after `stop` is stopped, and
// set `is_broken` if its device's link failed. Logs an error and returns the process's exit code.
int RunNemesisProgram(
    const std::function<absl::Status(StopLatch* stop, std::atomic<bool>* is_broken)>& work,
    const std::function<void(const std::string& line)>& log);

}  // namespace torchps
