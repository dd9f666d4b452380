#pragma once

#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/log_line.h"
#include "torchps/common/mutex.h"
#include "torchps/server/push_log/push_log.h"

namespace torchps {

// Writes a PushLog on a separate thread, as fast as the disk allows. After a failure, retries once
// a second.
//
// Thread-safe. The destructor writes the remaining records if the disk works, and ends the thread.
class LogThread {
 public:
  // `log` and `clock` outlive this object. `tell` is called on the log's thread with one sentence
  // when writing begins to fail, when the error changes, and when writing works again.
  LogThread(PushLog* log, const Clock* clock, LogLine tell);
  ~LogThread();
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;

 private:
  void Run();
  // Blocks until the next retry or until the destructor runs.
  void AwaitNextTry();
  bool stopping();

  PushLog* const log_;
  const Clock* const clock_;
  const LogLine tell_;

  Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace torchps
