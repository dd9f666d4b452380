#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace torchps {

// A slot's lease at one server, from a greeting to a farewell, as the slot knows of it.
//
// Thread-safe. Borrows the clock.
class ServerLease {
 public:
  explicit ServerLease(const Clock* clock) : clock_(clock) {}

  // The server, in this life of its, has let the slot in.
  void Begin(uint64_t server_life) {
    MutexLock lock(&mutex_);
    server_life_ = server_life;
    answered_ = clock_->Now();
  }

  // There is nothing to renew until the next greeting.
  void End() {
    MutexLock lock(&mutex_);
    server_life_ = 0;
  }

  // The life in which to renew; 0: there is nothing to renew.
  uint64_t server_life() const {
    MutexLock lock(&mutex_);
    return server_life_;
  }

  // The server has said something to a renewal.
  void Answered() {
    MutexLock lock(&mutex_);
    answered_ = clock_->Now();
  }

  // Since the server last answered a renewal, or a greeting. REQUIRES: it has let the slot in.
  absl::Duration silence() const {
    MutexLock lock(&mutex_);
    return clock_->Now() - answered_;
  }

 private:
  const Clock* const clock_;
  mutable Mutex mutex_;
  uint64_t server_life_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration answered_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
