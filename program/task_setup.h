#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"

namespace torchps {

// Tracks if a program is creating the task. The program's code then reads or generates data and
// cannot respond to a stop, and the process does not hold a slot yet.
//
// Thread-safe.
class TaskSetup {
 public:
  // Begins creating the task. CANCELLED: the process was stopped before; do not create the task.
  absl::Status Begin();
  // Ends creating the task, successful or not. CANCELLED: the process was stopped. May be called
  // again.
  absl::Status End();

  // Stops the process. Returns true if the task is being created: the process may then end
  // immediately, because it does not hold a slot. Otherwise the training thread receives the stop
  // from the stop latch or from Begin().
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

// Changes how the process ends if torch throws from a destructor, for example when freeing the
// memory of a failed GPU. It then ends with code 1 and a message on standard error, prefixed with
// `program`. By default it would end with SIGABRT, and a launcher would treat that as a crash and
// restart the program. Other failures are unchanged. Uses std::set_terminate. Call it once in main,
// before threads start.
void EndWellWhenTorchThrows(const char* program);

}  // namespace torchps
