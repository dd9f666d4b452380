#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/coordinator_client.h"
#include "client/held_values.h"
#include "client/parameter_client.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/stop_latch.h"
#include "proto/coordinator.pb.h"
#include "worker/epoch_positions.h"
#include "worker/flat_model.h"
#include "worker/learner.h"
#include "worker/model_handover.h"
#include "worker/progress.h"

namespace torchps {

// One slot's way through a job: asks for work, and for each step pulls values, computes a gradient
// and pushes it, until the coordinator says that the job is done.
//
//   ASYNC  NextWork -> for each step of the lease: Pull, compute, Push
//   SYNC   Pull, then NextWork -> a lease of exactly one step: compute, Push. In this order all
//          slots hold their leases of step t before any slot can ask for one of step t + 1.
//
// Pushing and, with consistency.prefetch, pulling go on behind the computing:
//
//   forward t | backward t                       | forward t + 1 | backward t + 1
//             | push t: blocks as they are final ..... its end   |
//             |      pull of the values of t + 1 |
//
// The push of step t must have ended before backward t + 1 writes the next gradient into the same
// memory, and before a lease is handed in, so that no sample counts as used whose gradient is not
// applied. The pull begins as late as it can and still be done when backward is, so that the values
// are not older than need be. What of the slot's own step t they lack, the bound counts
// (docs/design.md, "Consistency").
//
// Thread-compatible: all of it runs on the thread that calls Run(). Borrows everything.
class Trainer {
 public:
  struct Options {
    // Normalised, as the coordinator has confirmed it.
    JobSpec job;
    SlotId slot = 0;
    int64_t train_samples = 0;
    // Computing takes so many times as long: to see what staleness bounds do. At least 1.
    double slow = 1;
    // How often a progress line is printed.
    absl::Duration progress_interval = absl::Seconds(1);
    // Takes the lines that psctl reads.
    std::function<void(const std::string& line)> print = [](const std::string&) {};
    FlatModel* model = nullptr;
    Learner* learner = nullptr;
    ParameterClient* parameters = nullptr;
    CoordinatorClient* coordinator = nullptr;
    ModelHandover* handover = nullptr;
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
    // Hear of a gradient that was computed as step `number`, and of an evaluation. An error ends
    // Run() with it.
    std::function<absl::Status(int64_t number, const Learner::Gradient& gradient)> on_step =
        [](int64_t, const Learner::Gradient&) { return absl::OkStatus(); };
    std::function<absl::Status(const EvaluationResult& result)> on_epoch =
        [](const EvaluationResult&) { return absl::OkStatus(); };
    // The job is done, and the model holds what was learnt. Null: nobody asks, so that it is not
    // pulled.
    std::function<absl::Status()> on_end;
  };

  explicit Trainer(Options options);

  // Trains from the start of the job, or from where it is, to its end; has left the servers' clocks
  // where it succeeds.
  // CANCELLED: stopped. ABORTED: the coordinator has sent the slot away, since too many of its
  // gradients in a row were not finite, or has given it to another process. Everything else comes
  // from the clients and the learner.
  absl::Status Run();

  // Pushes that were acknowledged.
  int64_t pushes() const { return pushes_; }

 private:
  class StepObserver;

  absl::Status Work();
  // Waits for the start; pushes the initial values if asked to. False: the job has ended already.
  absl::StatusOr<bool> AwaitStart();
  absl::Status TrainOn(const DataLease& lease);
  // The values of the next step, pulled already or now.
  absl::Status PullValues();
  absl::Status TrainStep(const Learner::Step& step);
  // For the step that begins `begin` samples after the lease does.
  uint64_t AugmentationSeed(const DataLease& lease, int64_t begin) const;
  // When to begin a pull that is to end with the backward pass that begins now.
  absl::Duration LatestPull() const;
  // Begins the push of a step on so many samples, and the pull of the next one's values.
  absl::Status BeginTransfers(int64_t samples);
  // Waits for the push under way, if there is one, and enters it in the books.
  absl::Status FinishPush();
  // So many gradients in a row were not finite that the coordinator has to hear of it now.
  bool TooOftenNonfinite() const;
  // Evaluates the values that the servers have now, where the job evaluates, and hands them over.
  absl::Status Evaluate(int epoch, const absl::optional<KeepModel>& keep);
  // The values that the job ends with, for whoever asks for them.
  absl::Status TakeLearnt();
  // Makes the slot count in the servers' clocks, or no longer.
  absl::Status Enter();
  absl::Status Leave();
  absl::Status LeaveServers();

  const Options options_;
  const bool sync_;
  const bool prefetch_;
  EpochPositions positions_;
  Progress progress_;
  // Last step pushed; the name of the next push is one above it.
  Step clock_ = 0;
  bool entered_ = false;
  int epoch_ = 0;
  int64_t pushes_ = 0;
  int nonfinite_in_a_row_ = 0;
  // What the model's values, and its next values, hold.
  HeldValues held_;
  HeldValues next_held_;
  // Since the last NextWork that was answered, at `figures_since_`.
  StepFigures figures_;
  absl::Duration figures_since_;

  // The push of step clock_ + 1, and what its gradient was computed from. Outside of TrainStep()
  // all of its blocks are ready.
  std::unique_ptr<PendingPush> push_;
  Learner::Gradient pushed_;
  // The next step's values, on their way to the model's next_values(), now or soon.
  std::unique_ptr<PendingPull> ahead_;
  // When the present step's transfers began, and how long the last backward passes and pulls took,
  // the newest counting most.
  absl::Duration transfers_since_;
  absl::Duration backward_time_;
  absl::Duration pull_time_;
};

}  // namespace torchps
