#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "torchps/common/log_line.h"
#include "torchps/common/mutex.h"

namespace torchps {

// Logs errors of unauthenticated clients without letting them fill the log: each line at most once
// in ten seconds, and at most ten different lines in that time.
//
// Thread-safe. Calls `log` under a lock, one line at a time.
class LogThrottle {
 public:
  explicit LogThrottle(LogLine log);

  // `now` should not decrease, but a decrease is harmless.
  void Log(const std::string& line, absl::Time now);

 private:
  const LogLine log_;
  Mutex mutex_;
  // Lines logged since `since_`, with the number of requests to log each.
  std::map<std::string, int> said_ ABSL_GUARDED_BY(mutex_);
  absl::Time since_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace torchps
