#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"

namespace torchps {

// Runs a server's periodic tasks on a separate thread until it is stopped.
//
// Thread-safe. `chores` runs on that thread, and must not call Stop().
class PeriodicTasks {
 public:
  // Starts the thread. The first run is after `interval`.
  PeriodicTasks(absl::Duration interval, std::function<void()> chores);
  // Calls Stop().
  ~PeriodicTasks();
  PeriodicTasks(const PeriodicTasks&) = delete;
  PeriodicTasks& operator=(const PeriodicTasks&) = delete;

  // Makes the next run start `delay` from now, unless it is due earlier.
  void Hurry(absl::Duration delay);

  // Waits for a run in progress and ends the thread. Idempotent.
  void Stop();

 private:
  void Run();

  const SteadyClock clock_;
  const absl::Duration interval_;
  const std::function<void()> chores_;
  Mutex mutex_;
  CondVar changed_;
  // When the next run is due.
  absl::Duration next_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace torchps
