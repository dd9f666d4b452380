#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/mutex.h"

namespace torchps {

// Renews a slot's leases on a separate thread, so that servers do not declare the slot dead during
// a long forward pass. Thread-safe.
class Heartbeat {
 public:
  // Renews all leases within `timeout`. Called on the heartbeat's thread.
  using Renew = std::function<absl::Status(absl::Duration timeout)>;
  // Called once on the heartbeat's thread when the slot is lost.
  using OnLost = std::function<void(const absl::Status&)>;

  // Returns the delay before the next renewal. Called after each renewal on the heartbeat's thread.
  using Pause = std::function<absl::Duration()>;

  // Calls `renew` after `interval`, then with the delays that `pause` returns; null means always
  // `interval`. Only ABORTED ends the renewals early, because the slot's incarnation is over. Other
  // errors are left to the trainer's calls, for example an unreachable server.
  Heartbeat(absl::Duration interval, Renew renew, OnLost on_lost, Pause pause = nullptr);

  // Stops. Waits for a renewal in flight, at most until the renewal's timeout.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // OK while the slot is held.
  absl::Status status() const;

 private:
  void Run();

  const absl::Duration interval_;
  const Renew renew_;
  const OnLost on_lost_;
  const Pause pause_;
  mutable Mutex mutex_;
  CondVar stopping_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace torchps
