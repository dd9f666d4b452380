#include "common/process/ask.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <chrono>
#include <thread>

namespace torchps {
namespace {

void Nap() {
  // By itself the kernel lets a thread sleep for up to 50 us longer, to wake several at once.
  thread_local const int exact = prctl(PR_SET_TIMERSLACK, 1);
  static_cast<void>(exact);
  const timespec nap = absl::ToTimespec(kNap);
  nanosleep(&nap, nullptr);
}

}  // namespace

bool AskFor(absl::Duration time, absl::FunctionRef<bool()> has_come, Meanwhile meanwhile) {
  static const bool may_ask = std::thread::hardware_concurrency() > 1;
  if (!may_ask || time <= absl::ZeroDuration()) return false;
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
  do {
    if (has_come()) return true;
    if (meanwhile == Meanwhile::kNap) {
      Nap();
    } else {
      sched_yield();
    }
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

}  // namespace torchps
