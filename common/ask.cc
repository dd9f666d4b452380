#include "common/ask.h"

#include <sched.h>

#include <chrono>
#include <thread>

namespace torchps {

bool AskFor(absl::Duration time, absl::FunctionRef<bool()> has_come) {
  static const bool may_ask = std::thread::hardware_concurrency() > 1;
  if (!may_ask || time <= absl::ZeroDuration()) return false;
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
  do {
    if (has_come()) return true;
    sched_yield();
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

}  // namespace torchps
