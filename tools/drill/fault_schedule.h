#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tools/run/fault_plan.h"

namespace torchps {

// One line of a drill: what is done to which process, how often.
struct FaultRule {
  Fault::Kind kind = Fault::Kind::kKill;
  bool is_server = false;
  int index = -1;                               // -1: one of them, drawn each time
  absl::Duration every = absl::ZeroDuration();  // zero: once, at `at`
  absl::Duration at = absl::ZeroDuration();
  absl::Duration frozen = absl::Seconds(1);  // kFreeze: until it goes on
};

// "server:every=5s", "worker.2:at=30s", and for freezing "worker:every=8s:for=2s". INVALID_ARGUMENT
// names the part of it that is wrong, and what is expected there.
absl::StatusOr<FaultRule> ParseFaultRule(Fault::Kind kind, absl::string_view text, int servers,
                                         int workers);

// When what is done to which part, drawn from a seed: the same numbers give the same schedule.
// What comes `every` so often comes a quarter earlier or later at random; a part that is frozen is
// thawed. Times begin at zero. Not thread-safe.
class FaultSchedule {
 public:
  struct Options {
    std::vector<FaultRule> rules;
    int servers = 1;
    int workers = 1;
    absl::Duration length;  // no fault begins later; a thaw may
    uint64_t seed = 1;
  };

  explicit FaultSchedule(const Options& options);

  // Infinite: that was all.
  absl::Duration NextAt() const;
  // What is due by `now`, in order; each is given out once.
  std::vector<Fault> Take(absl::Duration now);

 private:
  struct Event {
    absl::Duration at;
    Fault fault;
  };
  std::vector<Event> events_;  // in order
  size_t next_ = 0;
};

}  // namespace torchps
