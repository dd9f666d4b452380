#pragma once

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "common/mutex.h"

namespace torchps {

// Says once, from any thread, that this process should stop, and why; a thread that waits for
// something else can wait for that too. Thread-safe.
class StopLatch {
 public:
  // Keeps `callback` registered for as long as it lives: called once, by the thread that stops, or
  // at once where that has already happened. When a Registration is gone its callback is neither
  // running nor called any more. A callback is short and does not use the latch.
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

  // The first reason given counts.
  void Stop(const std::string& reason);

  bool stopped() const;
  // Empty until stopped.
  std::string reason() const;

  // Waits until stopped or until `timeout` has passed; returns whether stopped.
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
