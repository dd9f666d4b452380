#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/worker/learner.h"
#include "torchps/worker/loop/simulated_slowdown.h"
#include "torchps/worker/loop/step_loop.h"
#include "torchps/worker/loop/step_work.h"

namespace torchps {

// Trains a task until its job ends: takes steps from the step loop and computes the gradient of
// each.
//
// Thread-compatible: all work runs on the thread that calls Run(). Borrows the pointers in Options.
class Trainer {
 public:
  struct Options {
    // Computes the gradient of a step (see ComputeGradient).
    ComputeGradient compute;
    StepLoop* loop = nullptr;
    // Delays gradients to simulate a slow worker. If a delay is configured, blocks are not reported
    // early.
    SimulatedSlowdown* handicap = nullptr;
    // Called after the gradient of step `number` was computed. Run() returns an error of this
    // function.
    std::function<absl::Status(int64_t number, const Learner::Gradient& gradient)> on_step =
        [](int64_t, const Learner::Gradient&) { return absl::OkStatus(); };
  };

  explicit Trainer(Options options) : options_(std::move(options)) {}

  // Trains until the job ends. The job may already be running. Returns errors of StepLoop::Next()
  // and of `compute`.
  absl::Status Run();

 private:
  class StepObserver;

  absl::Status TrainStep(const StepWork& step);

  const Options options_;
};

}  // namespace torchps
