#pragma once

#include <memory>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/clock.h"
#include "worker/device/device_link.h"

namespace torchps {

// Records the time at which a device finished its queued work. The thread that queues the work is
// far ahead of the device.
//
// Thread-safe.
class WorkEnd {
 public:
  // Covers the work that the calling thread queued so far. Borrows the clock until the link is
  // destroyed.
  WorkEnd(DeviceLink* link, const Clock* clock);

  // Returns the time by the clock; nullopt if the work is not finished or the link failed.
  absl::optional<absl::Duration> at() const;

 private:
  struct State;

  std::shared_ptr<State> state_;
};

}  // namespace torchps
