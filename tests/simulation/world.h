#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/hash.h"

namespace torchps::simulation {

// Provides virtual time, scheduled events, and all randomness. Everything runs on one thread in the
// order of time, so a seed determines the complete run.
//
// Not thread-safe, except the clock: threads of the tested code may read it.
class World {
 public:
  World(uint64_t seed, bool is_traced);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Clock* clock() const { return &clock_; }
  absl::Duration now() const { return clock_.Now(); }
  // Time since the start of the run.
  absl::Duration elapsed() const { return now() - clock_.start; }

  void After(absl::Duration delay, std::function<void()> event);

  // Runs the next event. Returns false if there is none.
  bool Step();
  // Runs a few events within the current event, to simulate that the current event takes time.
  void GoOnMeanwhile();
  uint64_t events() const { return events_run_; }

  // Random numbers.
  uint64_t Draw() { return SplitMix64(random_); }
  uint64_t Below(uint64_t bound) { return UniformBelow(random_, bound); }
  bool Chance(double probability) { return UnitDouble(Draw()) < probability; }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return low + (high - low) * UnitDouble(Draw());
  }
  // Returns the time to the next event of a Poisson process.
  absl::Duration NextAfter(absl::Duration mean);

  template <typename... Parts>
  void Trace(const Parts&... parts) {
    if (is_traced_) Print(absl::StrCat(parts...));
  }

  // Reports an error that the simulation found. Keeps only the first report.
  template <typename... Parts>
  void Violation(const Parts&... parts) {
    if (!violation_.empty()) return;
    violation_ = absl::StrCat("after ", absl::FormatDuration(elapsed()), ": ", parts...);
    Trace("VIOLATION ", violation_);
  }
  const std::string& violation() const { return violation_; }

  // Adds a value to the digest, which must be equal in two runs of a seed.
  void Digest(uint64_t value) { digest_ = (digest_ ^ value) * 0x100000001b3u; }
  uint64_t digest() const { return digest_; }

 private:
  class ManualClock final : public Clock {
   public:
    absl::Duration Now() const override { return now; }
    // Does not start at 0, because a deadline that the code forgot to set is 0 and would look
    // correct.
    const absl::Duration start = absl::Seconds(1000);
    absl::Duration now = start;
  };

  void Print(const std::string& line) const;

  const bool is_traced_;
  ManualClock clock_;
  uint64_t random_;
  // Scheduled events, ordered by time and then by the After() calls.
  std::map<std::pair<absl::Duration, uint64_t>, std::function<void()>> events_;
  uint64_t last_event_ = 0;
  uint64_t events_run_ = 0;
  int depth_ = 0;  // of nested events
  uint64_t digest_ = 0xcbf29ce484222325u;
  std::string violation_;
};

}  // namespace torchps::simulation
