#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "tools/run_plan/fault_plan.h"

namespace torchps {

// One line of a drill: what is done to whom, how often.
struct FaultRule {
  Fault::Kind kind = Fault::Kind::kKill;
  // Of kCut and kReset: a worker and a server (is_server is false), a server and all workers, or
  // the two halves of the job. Of the others one part.
  bool is_server = false;
  bool halves = false;
  int index = -1;                               // -1: one of them, drawn each time
  int stage = -1;                               // of a worker's processes which; -1: as above
  int other = -1;                               // the server of a worker's link; -1: as above
  absl::Duration every = absl::ZeroDuration();  // zero: once, at `at`
  absl::Duration at = absl::ZeroDuration();
  absl::Duration lasting = absl::ZeroDuration();  // of what ends again: after so long
};

// "server:every=5s", "worker.2:at=30s"; where workers are `stages` processes each also
// "worker.2.1:...", the one with stage 1; of what ends again "worker:every=8s:for=2s"; of the
// network also "worker.1-server.0:..." and "halves:...". INVALID_ARGUMENT names the part of it that
// is wrong, and what is expected there.
absl::StatusOr<FaultRule> ParseFaultRule(Fault::Kind kind, absl::string_view text, int servers,
                                         int workers, int stages = 0);

// The flag that makes rules of a kind, "kill", and what else ends the fault; nothing: it is over at
// once. REQUIRES, of both: a kind that begins a fault.
absl::string_view FindFlag(Fault::Kind kind);
absl::optional<Fault::Kind> GetEnd(Fault::Kind kind);

// When what is done to which part, drawn from a seed: the same numbers give the same schedule.
// What comes `every` so often comes a quarter earlier or later at random; what begins also ends.
// Times begin at zero. Not thread-safe.
class FaultSchedule {
 public:
  struct Options {
    std::vector<FaultRule> rules;
    int servers = 1;
    int workers = 1;
    int stages = 0;         // processes of each worker, which are hit one by one; 0: it is one
    absl::Duration length;  // no fault begins later; its end may come later
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
