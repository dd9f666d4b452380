#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/mutex.h"

namespace torchps {

// Says what strangers do wrong without letting them fill a log: the same sentence once in ten
// seconds, and at most ten different ones in that time.
//
// Thread-safe. `log` is called under its lock, one line at a time.
class LogThrottle {
 public:
  explicit LogThrottle(std::function<void(const std::string& line)> log);

  // `now` only ever rises; where it does not, nothing bad happens.
  void Log(const std::string& line, absl::Time now);

 private:
  const std::function<void(const std::string& line)> log_;
  Mutex mutex_;
  // What was said since `since_`, and how often it would have been.
  std::map<std::string, int> said_ ABSL_GUARDED_BY(mutex_);
  absl::Time since_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace torchps
