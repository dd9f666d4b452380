#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace torchps {

// A slot's lease at one server, from a greeting to a farewell, as the slot knows of it.
//
// Thread-safe, but for renewals, of which one thread makes one at a time. Borrows the clock.
class ServerLease {
 public:
  // How the renewals went, by the clock.
  struct Contact {
    absl::Duration answered;  // when the server last answered a renewal or a greeting
    // When the first renewal after that began which was not answered.
    absl::optional<absl::Duration> missed;
    // When the first and the last renewal began of those that were all answered, up to now.
    absl::optional<absl::Duration> first_reached;
    absl::Duration last_reached;
  };

  explicit ServerLease(const Clock* clock) : clock_(clock) {}

  // The server, in this life of its, has let the slot in.
  void Begin(uint64_t server_incarnation) {
    MutexLock lock(&mutex_);
    server_incarnation_ = server_incarnation;
    contact_.missed.reset();
    contact_.answered = clock_->Now();
  }

  // There is nothing to renew until the next greeting.
  void End() {
    MutexLock lock(&mutex_);
    server_incarnation_ = 0;
  }

  // The life in which to renew; 0: there is nothing to renew.
  uint64_t server_incarnation() const {
    MutexLock lock(&mutex_);
    return server_incarnation_;
  }

  // A renewal begins.
  void RenewalBegins() {
    MutexLock lock(&mutex_);
    begun_ = clock_->Now();
  }

  // The renewal has ended, with an answer or without. Of two that begin more than `longest_pause`
  // apart nobody knows whether the server was there in between.
  void RenewalEnds(bool answered, absl::Duration longest_pause) {
    MutexLock lock(&mutex_);
    if (!answered) {
      contact_.first_reached.reset();
      // One that began before a greeting tells nothing of the time after it.
      if (!contact_.missed.has_value() && begun_ >= contact_.answered) contact_.missed = begun_;
      return;
    }
    const bool goes_on =
        contact_.first_reached.has_value() && begun_ - contact_.last_reached <= longest_pause;
    if (!goes_on) contact_.first_reached = begun_;
    contact_.last_reached = begun_;
    contact_.missed.reset();
    contact_.answered = clock_->Now();
  }

  // REQUIRES: the server has let the slot in.
  Contact contact() const {
    MutexLock lock(&mutex_);
    return contact_;
  }

 private:
  const Clock* const clock_;
  mutable Mutex mutex_;
  uint64_t server_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration begun_ ABSL_GUARDED_BY(mutex_);
  Contact contact_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
