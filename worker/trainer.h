#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/ids.h"
#include "proto/coordinator.pb.h"
#include "worker/coordinator_client.h"
#include "worker/epoch_positions.h"
#include "worker/flat_model.h"
#include "worker/learner.h"
#include "worker/parameter_client.h"
#include "worker/progress.h"
#include "worker/stop_latch.h"

namespace torchps {

// One slot's way through a job: asks for work, and for each step pulls values, computes a gradient
// and pushes it, until the coordinator says that the job is done.
//
//   ASYNC  NextWork -> for each step of the lease: Pull, compute, Push
//   SYNC   Pull, then NextWork -> a lease of exactly one step: compute, Push. In this order all
//          slots hold their leases of step t before anybody can ask for one of step t + 1.
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
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
  };

  explicit Trainer(Options options);

  // Trains from the start of the job, or from where it is, to its end; has left the servers' clocks
  // where it succeeds.
  // CANCELLED: stopped. INVALID_ARGUMENT: ten gradients in a row were not finite. Everything else
  // comes from the clients and the learner.
  absl::Status Run();

  // Pushes that were acknowledged.
  int64_t pushes() const { return pushes_; }

 private:
  // Waits for the start; pushes the initial values if asked to. False: the job has ended already.
  absl::StatusOr<bool> AwaitStart();
  absl::Status TrainOn(const DataLease& lease);
  absl::Status PullValues();
  absl::Status TrainStep(absl::Span<const int64_t> samples);
  absl::Status PushGradient(const Learner::Gradient& gradient);
  absl::Status Evaluate(int epoch);
  // Makes the slot count in the servers' clocks, or no longer.
  absl::Status Enter();
  absl::Status Leave();

  const Options options_;
  const bool sync_;
  EpochPositions positions_;
  Progress progress_;
  // Last step pushed; the name of the next push is one above it.
  Step clock_ = 0;
  bool entered_ = false;
  int epoch_ = 0;
  int64_t pushes_ = 0;
  int nonfinite_in_a_row_ = 0;
  // Since the last NextWork that was answered.
  StepFigures figures_;
};

}  // namespace torchps
