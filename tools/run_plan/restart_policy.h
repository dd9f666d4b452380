#pragma once

#include <deque>
#include <string>

#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace torchps {

// How often, and how soon, one part of a cluster that has died is started again: so many times
// within a window of time, each time after twice the delay of the one before. Time is handed in.
// Not thread-safe.
class RestartPolicy {
 public:
  struct Options {
    int most = 5;  // restarts within `window`; 0: never
    absl::Duration window = absl::Minutes(10);
    // Short: what has died of a signal mostly comes back at once, and all others wait for it.
    absl::Duration first_delay = absl::Milliseconds(100);
    absl::Duration longest_delay = absl::Seconds(5);
  };

  explicit RestartPolicy(Options options) : options_(options) {}

  // The part has died at `now`: how long to wait before it is started again. Nothing: it has died
  // too often, and stays down.
  absl::optional<absl::Duration> Died(absl::Duration now);

  // In all, however long ago.
  int restarts() const { return restarts_; }

 private:
  Options options_;
  std::deque<absl::Duration> recent_;  // deaths within the window that a restart followed
  int restarts_ = 0;
};

// Returns the reason why a part that died again is not restarted, to follow its last words; empty
// if the policy allows no restarts at all.
std::string StaysDownText(const RestartPolicy::Options& options);

// Whether a process that has ended with `exit_code` (128 + n after signal n; ssh's own failure is
// 255) has died of something that may not happen again: a signal, a slot that its lease ran out
// for, a server that it did not reach for as long as it waits, and, for one that was started again
// at its old address, that address not being free yet. What a flag, a job or a file is wrong about
// is as wrong the next time.
bool IsWorthRestarting(int exit_code, bool started_again);

}  // namespace torchps
