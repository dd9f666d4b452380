#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "torchps/common/clock.h"

namespace torchps {

// Shows a fixed time until a test advances it. Thread-safe.
class ManualClock final : public Clock {
 public:
  absl::Duration Now() const override { return absl::Nanoseconds(nanoseconds_.load()); }
  void Advance(absl::Duration by) { nanoseconds_ += absl::ToInt64Nanoseconds(by); }

 private:
  // Does not start at 0, because a deadline that the code forgot to set is 0 and would look
  // correct.
  std::atomic<int64_t> nanoseconds_{1000000000000};
};

}  // namespace torchps
