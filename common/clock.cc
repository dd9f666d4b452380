#include "common/clock.h"

#include <chrono>

namespace torchps {

absl::Duration SteadyClock::Now() const {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace torchps
