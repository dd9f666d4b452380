#include "torchps/worker/device/device_link.h"

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/common/mutex.h"

namespace torchps {

struct WorkEnd::State {
  Mutex mutex;
  std::optional<absl::Duration> at ABSL_GUARDED_BY(mutex);
};

WorkEnd::WorkEnd(DeviceLink* link, const Clock* clock) : state_(std::make_shared<State>()) {
  const absl::StatusOr<DeviceLink::Mark> computed = link->AfterCompute();
  // The link keeps the error and reports it at the next copy.
  if (!computed.ok()) return;
  const auto stamp = [state = state_, clock](const absl::Status& status) {
    if (!status.ok()) return;
    MutexLock lock(&state->mutex);
    state->at = clock->Now();
  };
  link->WhenReached(*computed, stamp).IgnoreError();
}

std::optional<absl::Duration> WorkEnd::at() const {
  MutexLock lock(&state_->mutex);
  return state_->at;
}

}  // namespace torchps
