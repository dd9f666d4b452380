#pragma once

#include <deque>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace torchps {

// Decides when and how often a part of a cluster is restarted after it died: at most `most` times
// within `window`, doubling the delay each time. The caller supplies the time. Not thread-safe.
class RestartPolicy {
 public:
  struct Options {
    int most = 5;  // restarts within `window`; 0: do not restart
    absl::Duration window = absl::Minutes(10);
    // Short, because a process killed by a signal usually restarts successfully, and the other
    // parts wait for it.
    absl::Duration first_delay = absl::Milliseconds(100);
    absl::Duration longest_delay = absl::Seconds(5);
  };

  explicit RestartPolicy(Options options) : options_(options) {}

  // Records a death at `now`. Returns the delay before the restart, or nullopt if the part must not
  // restart again.
  std::optional<absl::Duration> Died(absl::Duration now);

  // Total number of restarts.
  int restarts() const { return restarts_; }

 private:
  Options options_;
  std::deque<absl::Duration> recent_;  // restarted deaths within the window
  int restarts_ = 0;
};

// Returns the explanation for a part that is not restarted again, or "" if the policy does not
// allow restarts.
std::string StaysDownText(const RestartPolicy::Options& options);

// Returns true if a restart may help after `exit_code` (128 + n for signal n; 255 if ssh failed):
// after a signal, a lost lease or an unreachable server. For a part that `started_again`, also if
// the old address was still in use. A wrong flag, job or file would fail again.
bool IsWorthRestarting(int exit_code, bool started_again);

}  // namespace torchps
