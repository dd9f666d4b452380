#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace torchps {

// A thread that does a server's chores now and then, until it is stopped.
//
// Thread-safe. `chores` run on its thread, and must not stop it.
class PeriodicTasks {
 public:
  // Starts. The first chores are done after `interval`.
  PeriodicTasks(absl::Duration interval, std::function<void()> chores);
  // Stops.
  ~PeriodicTasks();
  PeriodicTasks(const PeriodicTasks&) = delete;
  PeriodicTasks& operator=(const PeriodicTasks&) = delete;

  // The next chores are done after `delay`, if they are not due before.
  void Hurry(absl::Duration delay);

  // Waits for chores that run. Idempotent.
  void Stop();

 private:
  void Run();

  const SteadyClock clock_;
  const absl::Duration interval_;
  const std::function<void()> chores_;
  Mutex mutex_;
  CondVar changed_;
  // When the next chores are due.
  absl::Duration next_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace torchps
