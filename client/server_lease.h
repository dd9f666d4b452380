#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace torchps {

// Tracks a slot's lease on one server, from Hello to Leave, as seen by the slot.
//
// Thread-safe, except that only one renewal may be in progress at a time. Borrows the clock.
class ServerLease {
 public:
  // History of the renewals, in clock times.
  struct Contact {
    absl::Duration answered;  // when the server last answered a renewal or Hello
    // Start of the first unanswered renewal after that.
    absl::optional<absl::Duration> missed;
    // Starts of the first and last renewal in the current unbroken run of answered renewals.
    absl::optional<absl::Duration> first_reached;
    absl::Duration last_reached;
  };

  explicit ServerLease(const Clock* clock) : clock_(clock) {}

  // Records that this server incarnation admitted the slot.
  void Begin(uint64_t server_incarnation) {
    MutexLock lock(&mutex_);
    server_incarnation_ = server_incarnation;
    contact_.missed.reset();
    contact_.answered = clock_->Now();
  }

  // Stops renewals until the next greeting.
  void End() {
    MutexLock lock(&mutex_);
    server_incarnation_ = 0;
  }

  // The server incarnation to renew at; 0 if there is nothing to renew.
  uint64_t server_incarnation() const {
    MutexLock lock(&mutex_);
    return server_incarnation_;
  }

  // Records the start of a renewal.
  void RenewalBegins() {
    MutexLock lock(&mutex_);
    begun_ = clock_->Now();
  }

  // Records the end of a renewal. If two renewals begin more than `longest_pause` apart, the server
  // may have been unreachable in between, so a new run begins.
  void RenewalEnds(bool answered, absl::Duration longest_pause) {
    MutexLock lock(&mutex_);
    if (!answered) {
      contact_.first_reached.reset();
      // Renewals that began before a greeting do not count after it.
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

  // REQUIRES: the server admitted the slot.
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
