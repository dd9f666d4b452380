#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/tools/run_plan/fault_plan.h"

namespace torchps {

// Rule of a drill: a kind of fault, the target and the times.
struct FaultRule {
  Fault::Kind kind = Fault::Kind::kKill;
  // kCut and kReset break network links: from one worker to one server (is_server is false), from
  // all workers to one server, or between the two halves of the job. Other kinds apply to one part.
  bool is_server = false;
  bool halves = false;
  int index = -1;                               // -1: random each time
  int stage = -1;                               // process of the worker; -1: random
  int other = -1;                               // server of a worker's link; -1: random
  absl::Duration every = absl::ZeroDuration();  // zero: once, at `at`
  absl::Duration at = absl::ZeroDuration();
  absl::Duration lasting = absl::ZeroDuration();  // duration, for kinds that end
};

// Parses a rule: "server:every=5s" or "worker.2:at=30s". If workers run in `stages` processes,
// "worker.2.1:..." names stage 1. Faults that end can set a duration: "worker:every=8s:for=2s".
// Network faults also accept "worker.1-server.0:..." and "halves:...". INVALID_ARGUMENT: the
// message names the invalid part and the expected form.
absl::StatusOr<FaultRule> ParseFaultRule(Fault::Kind kind, absl::string_view text, int servers,
                                         int workers, int stages = 0);

// Returns the flag for a kind of fault, for example "kill", and the kind that ends it, or nullopt
// if the fault is instantaneous. REQUIRES, for both: a kind that begins a fault.
absl::string_view FindFlag(Fault::Kind kind);
std::optional<Fault::Kind> GetEnd(Fault::Kind kind);

// Draws a schedule of faults from a seed; equal options produce equal schedules. A periodic fault
// varies by up to a quarter of the period at random. Each fault that begins also ends. Times start
// at zero. Not thread-safe.
class FaultSchedule {
 public:
  struct Options {
    std::vector<FaultRule> rules;
    int servers = 1;
    int workers = 1;
    int stages = 0;         // processes per worker, hit separately; 0: one process
    absl::Duration length;  // faults begin before this, but may end later
    uint64_t seed = 1;
  };

  explicit FaultSchedule(const Options& options);

  // Time of the next fault; infinite if the schedule has ended.
  absl::Duration NextAt() const;
  // Returns the faults due by `now`, in order. Returns each fault once.
  std::vector<Fault> Take(absl::Duration now);

 private:
  struct Event {
    absl::Duration at;
    Fault fault;
  };
  std::vector<Event> events_;  // ordered by time
  size_t next_ = 0;
};

}  // namespace torchps
