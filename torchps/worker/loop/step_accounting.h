#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "torchps/client/pending_push.h"
#include "torchps/client/rollback_accounting.h"
#include "torchps/common/clock.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.pb.h"

namespace torchps {

// Accumulates steps and formats them, once per interval, as a progress line for users and for
// psctl. Not thread-safe. The caller passes the time.
class Progress {
 public:
  Progress(SlotId slot, absl::Duration interval, absl::Duration now);

  // Adds a step of `samples` samples. `loss_sum` is the sum of the samples' losses, and `waited` is
  // the waiting time within the step. The line shows the mean loss of the steps with a finite
  // `loss_sum`, or nan if there are none.
  void Add(int64_t samples, double loss_sum, absl::Duration waited);

  // Returns a line if `interval` has passed since the last line and a step was added; otherwise "".
  std::string Line(int epoch, Step step, absl::Duration now);

 private:
  const SlotId slot_;
  const absl::Duration interval_;
  absl::Duration since_;
  int64_t samples_ = 0;
  int64_t loss_samples_ = 0;  // the samples of loss_sum_
  double loss_sum_ = 0;
  absl::Duration waited_;
};

// Measures how long a trainer has been busy with one unit of work: a pass, the fetching of samples,
// an evaluation. Waiting for servers does not count.
//
// Thread-safe. Borrows the clock.
class ProgressTimer {
 public:
  // Stops the timer for the object's lifetime. Used while the trainer waits for servers.
  class Rest {
   public:
    explicit Rest(ProgressTimer* pulse) : pulse_(pulse) { pulse_->since_ns_ = kResting; }
    ~Rest() { pulse_->Beat(); }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

   private:
    ProgressTimer* const pulse_;
  };

  // The timer starts stopped.
  explicit ProgressTimer(const Clock* clock) : clock_(clock) {}

  // Restarts the timer: the trainer finished a unit of work, or begins one.
  void Beat() { since_ns_ = absl::ToInt64Nanoseconds(clock_->Now()); }

  // Returns the time since the last Beat(), or zero while the timer is stopped.
  absl::Duration stalled_for() const {
    const int64_t since = since_ns_;
    return since == kResting ? absl::ZeroDuration() : clock_->Now() - absl::Nanoseconds(since);
  }

 private:
  static constexpr int64_t kResting = -1;

  const Clock* const clock_;
  std::atomic<int64_t> since_ns_{kResting};
};

// Collects the step figures that a slot sends to the coordinator with each NextWork: times, push
// verdicts, lost samples, and the number of consecutive gradients that were not finite. The figures
// since the previous NextWork form a page. Only the count of consecutive gradients and pushes()
// continue when a new page begins.
//
// Thread-compatible. Durations are passed in; the class reads no clock.
class StepAccounting {
 public:
  // The result of a step.
  struct Outcome {
    int64_t samples = 0;
    double loss_sum = 0;  // sum over the samples
    // The gradient is known to contain non-finite elements and must not be pushed.
    bool not_finite = false;
    // The loss scale was too large, so the gradient must not be pushed either. Overflows are
    // expected and do not count towards quarantine.
    bool overflowed = false;
    // The number of overflows: 0 or 1, or the number of local steps that overflowed.
    int64_t overflows = 0;
    // The number of local steps skipped because the gradient was not finite. The step's other local
    // steps were applied.
    int64_t skipped_steps = 0;
    // Trained elements that backward() did not reach. The push lacks them, and the optimizer leaves
    // them unchanged.
    ElementRuns absent;
    absl::Duration data_time;     // fetching samples
    absl::Duration compute_time;  // everything else except transfers
  };

  explicit StepAccounting(const TrainingSpec& training);

  // Begins an empty page at `now`. Call it before any other function, and again after a page was
  // sent.
  void BeginPage(absl::Duration now);

  // Adds a pull. The staleness bound delayed it for `waited`; the rest of the time until the values
  // arrived is `pulled`.
  void EnterPull(absl::Duration waited, absl::Duration pulled);
  // Adds a step that was abandoned and restarted because the gradient would have arrived too late.
  void EnterStopped(absl::Duration computed);
  // Adds a step that was computed completely.
  void EnterStep(const Outcome& step);
  // Adds a step's push, for which the slot waited `took`. The step's samples are at the positions
  // `part` of the sample lease.
  void EnterPush(const Outcome& step, const LeaseRange& part, const PushResult& push,
                 absl::Duration took);

  // Returns the page's figures at `now`. `rolled_back` are the pushes that restarted servers lost
  // since the previous page.
  StepFigures Figures(absl::Duration now, const RollbackAccounting::Lost& rolled_back) const;
  // Returns the samples whose pushes changed no block since BeginPage(), as positions in the sample
  // lease. They must be leased again.
  absl::Span<const LeaseRange> lost() const { return lost_; }

  // True if the number of consecutive gradients that were not finite reached the limit, so that the
  // coordinator must be informed now.
  bool TooOftenNonfinite() const;
  // Returns the number of acknowledged pushes over all pages.
  int64_t pushes() const { return pushes_; }

 private:
  // Adds the loss of a step whose samples count as used. If the loss is not finite, adds the number
  // of samples to those without a loss instead.
  void AddLoss(const Outcome& step);

  // 0: no limit.
  const int64_t max_nonfinite_in_a_row_;
  StepFigures figures_;
  std::vector<LeaseRange> lost_;
  absl::Duration since_;
  int nonfinite_in_a_row_ = 0;
  int64_t pushes_ = 0;
};

}  // namespace torchps
