#pragma once

#include <memory>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/clock.h"
#include "worker/device/device_link.h"

namespace torchps {

// When a device was done with what it had been given: a thread that gives it work is long ahead.
//
// Thread-safe.
class WorkEnd {
 public:
  // Of what the calling thread has given the device to compute so far. Borrows the clock until the
  // link is gone.
  WorkEnd(DeviceLink* link, const Clock* clock);

  // By the clock. Nullopt: it is not done, or the link has failed.
  absl::optional<absl::Duration> at() const;

 private:
  struct State;

  std::shared_ptr<State> state_;
};

}  // namespace torchps
