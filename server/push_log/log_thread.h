#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "server/push_log/push_log.h"

namespace torchps {

// Writes a PushLog, on a thread of its own, as fast as the disk takes it; while the disk takes
// nothing, tries again once a second.
//
// Thread-safe. The destructor writes what is left, if the disk takes it, and ends the thread.
class LogThread {
 public:
  // `log` and `clock` outlive this object. `tell` gets one sentence when writing begins to fail,
  // another when it fails for another reason, and one when it works again; on the log's thread.
  LogThread(PushLog* log, const Clock* clock, std::function<void(absl::string_view)> tell);
  ~LogThread();
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;

 private:
  void Run();
  // Until the time to try again, or to stop.
  void AwaitNextTry();
  bool stopping();

  PushLog* const log_;
  const Clock* const clock_;
  const std::function<void(absl::string_view)> tell_;

  Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace torchps
