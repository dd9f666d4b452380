#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace torchps {

// Measures how long workers stall during faults. For each kind of fault, counts the faults and
// finds the longest time without progress of a worker that the fault did not hit. The resolution is
// that of the progress reports, a few per second. Times use one clock and must not decrease. Not
// thread-safe.
class StallWatch {
 public:
  void OnProgress(int worker, absl::Duration now);
  // The worker has finished; it does not stall from now on.
  void OnDone(int worker, absl::Duration now);

  // Records that a fault of this kind begins; `hit` are the affected workers. Returns a number for
  // End(). For an instantaneous fault, call both.
  int Begin(absl::string_view kind, std::set<int> hit, absl::Duration now);
  void End(int fault, absl::Duration now);

  struct Figures {
    int times = 0;
    // Unset if the faults hit every worker, or no other worker reported progress afterwards.
    absl::optional<absl::Duration> longest_stall;
  };
  const std::map<std::string, Figures>& by_kind() const { return by_kind_; }
  // Over the workers, hit or not.
  absl::Duration longest_stall() const { return longest_; }

 private:
  struct Episode {
    std::string kind;
    std::set<int> hit;
    absl::Duration began;
    absl::Duration ended = absl::InfiniteDuration();
  };

  std::vector<Episode> episodes_;  // indexed by number
  std::map<int, absl::Duration> last_progress_;
  std::map<std::string, Figures> by_kind_;
  absl::Duration longest_ = absl::ZeroDuration();
};

}  // namespace torchps
