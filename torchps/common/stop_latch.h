#pragma once

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "torchps/common/mutex.h"

namespace torchps {

// Signals once, from any thread, that this process should stop, and records the reason. Threads
// that wait for another event can register a callback to be woken by the stop as well. Thread-safe.
class StopLatch {
 public:
  // Keeps `callback` registered during the lifetime of this object. The stopping thread calls the
  // callback once; if the latch is already stopped, the constructor calls it. After the destructor
  // returns, the callback is not running and is not called again. Callbacks must be short and must
  // not use the latch.
  class Registration {
   public:
    Registration(StopLatch* latch, std::function<void()> callback);
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    StopLatch* const latch_;
    int id_;
  };

  // Only the first reason is kept.
  void Stop(const std::string& reason);

  bool stopped() const;
  // Returns the reason, or an empty string if the latch is not stopped.
  std::string reason() const;

  // Blocks until the latch is stopped or `timeout` expires. Returns true if it is stopped.
  bool WaitFor(absl::Duration timeout) const;

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  int next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::btree_map<int, std::function<void()>> callbacks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
