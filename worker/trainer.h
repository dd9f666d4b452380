#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/learner.h"
#include "worker/loop/simulated_slowdown.h"
#include "worker/loop/step_loop.h"

namespace torchps {

// Trains a task to the end of its job: for each step of the loop, what is computed for it.
//
// Thread-compatible: all of it runs on the thread that calls Run(). Borrows everything.
class Trainer {
 public:
  struct Options {
    // Learner::Compute(), or what stands in its place.
    ComputeGradient compute;
    StepLoop* loop = nullptr;
    // Holds the gradients of steps back, whole: no block of them is told early then.
    SimulatedSlowdown* handicap = nullptr;
    // Hears of a gradient that was computed as step `number`. An error ends Run() with it.
    std::function<absl::Status(int64_t number, const Learner::Gradient& gradient)> on_step =
        [](int64_t, const Learner::Gradient&) { return absl::OkStatus(); };
  };

  explicit Trainer(Options options) : options_(std::move(options)) {}

  // Trains from the start of the job, or from where it is, to its end. Errors are StepLoop::Next's
  // and the learner's.
  absl::Status Run();

 private:
  class StepObserver;

  absl::Status TrainStep(const StepLoop::StepWork& step);

  const Options options_;
};

}  // namespace torchps
