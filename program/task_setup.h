#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"

namespace torchps {

// The time in which a program makes its task: its own code reads or draws data, cannot hear of a
// stop, and the process holds nothing of a job yet.
//
// Thread-safe.
class TaskSetup {
 public:
  // The task is made from now on. CANCELLED: the process was told to stop before; none is to be.
  absl::Status Begin();
  // It is made, or will not be. CANCELLED: the process was told to stop. May be called again.
  absl::Status End();

  // The process was told to stop. True: the task is being made, so that there is nothing to give
  // back and the process may end at once. False: who works hears of it, by the stop latch or from
  // Begin().
  bool Stop(const std::string& reason);

 private:
  absl::Status status() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopped_ ? absl::CancelledError(reason_) : absl::OkStatus();
  }

  Mutex mutex_;
  bool is_making_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
