#include "common/process/spin.h"

#include <sched.h>

#include <chrono>
#include <thread>

namespace torchps {

bool SpinFor(absl::Duration time, absl::FunctionRef<bool()> has_come) {
  static const bool may_spin = std::thread::hardware_concurrency() > 1;
  if (!may_spin || time <= absl::ZeroDuration()) return false;
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
  do {
    if (has_come()) return true;
    sched_yield();
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

}  // namespace torchps
