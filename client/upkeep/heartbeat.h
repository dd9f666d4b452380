#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/mutex.h"

namespace torchps {

// Renews a slot's leases on its own thread for as long as it lives, so that a long forward pass is
// not taken for death. Thread-safe.
class Heartbeat {
 public:
  // Renews all leases, taking at most `timeout`. Called on the heartbeat's thread.
  using Renew = std::function<absl::Status(absl::Duration timeout)>;
  // Told once, on the heartbeat's thread, that the slot is lost.
  using OnLost = std::function<void(const absl::Status&)>;

  // How long to wait before the next renewal; asked after each, on the heartbeat's thread.
  using Pause = std::function<absl::Duration()>;

  // Calls `renew` every `interval`, or as `pause` says after the first. Only ABORTED, which says
  // that the slot's incarnation is over, ends this early: a server that is away is for the trainer
  // to wait for.
  Heartbeat(absl::Duration interval, Renew renew, OnLost on_lost, Pause pause = nullptr);

  // Stops; waits for a renewal in flight, which takes at most its timeout.
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
