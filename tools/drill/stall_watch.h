#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace torchps {

// How long workers stood still while something was wrong elsewhere: told of their progress and of
// faults, it knows for each kind of fault how often it came, and the longest time that a worker
// which no fault had hit made no progress in. What workers tell comes a few times in a second, so
// that is how exact it is. Times are of one clock, and handed in in order. Not thread-safe.
class StallWatch {
 public:
  void OnProgress(int worker, absl::Duration now);
  // It has nothing more to do, so it does not stand still from now on.
  void OnDone(int worker, absl::Duration now);

  // A fault of this kind begins; `hit` are the workers that it is done to. Returns its number, for
  // End(). One that is over at once begins and ends.
  int Begin(absl::string_view kind, std::set<int> hit, absl::Duration now);
  void End(int fault, absl::Duration now);

  struct Figures {
    int times = 0;
    // Nothing: there were no others, or none of them told of progress afterwards.
    absl::optional<absl::Duration> longest_stall;
  };
  const std::map<std::string, Figures>& by_kind() const { return by_kind_; }
  // Of any worker, hit or not.
  absl::Duration longest_stall() const { return longest_; }

 private:
  struct Episode {
    std::string kind;
    std::set<int> hit;
    absl::Duration began;
    absl::Duration ended = absl::InfiniteDuration();
  };

  std::vector<Episode> episodes_;  // by number
  std::map<int, absl::Duration> last_progress_;
  std::map<std::string, Figures> by_kind_;
  absl::Duration longest_ = absl::ZeroDuration();
};

}  // namespace torchps
