#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "common/clock.h"

namespace torchps {

// A clock that stands still until a test moves it. Thread-safe.
class ManualClock final : public Clock {
 public:
  absl::Duration Now() const override { return absl::Nanoseconds(nanoseconds_.load()); }
  void Advance(absl::Duration by) { nanoseconds_ += absl::ToInt64Nanoseconds(by); }

 private:
  // Not at zero, where forgetting to set a deadline would look right.
  std::atomic<int64_t> nanoseconds_{1000000000000};
};

}  // namespace torchps
