#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/clock.h"
#include "common/element_runs.h"
#include "common/fragments.h"
#include "common/ids.h"
#include "proto/job.pb.h"
#include "worker/feed/batch_loader.h"
#include "worker/finish_gradient.h"
#include "worker/flat_model.h"
#include "worker/gradient/gradient_watch.h"
#include "worker/task.h"

namespace torchps {

// The part of a worker that computes: the gradients of samples. Knows no server
// and no job.
//
// Thread-compatible; all of its work is done by the calling thread (and torch's). Borrows the
// model. What the user's module, objective or dataset throw or return comes back as a status.
class Learner {
 public:
  struct Options {
    // Clipping, and what becomes of a gradient that is not finite.
    TrainingSpec training;
    // How the model is cut: for blocks to be told early. Both borrowed.
    const BlockMap* block_map = nullptr;
    const Clock* clock = nullptr;
    // The job's; the seeds of Callbacks::augment follow from it.
    uint64_t seed = 1;
    // Gradients are those of local steps (worker/local_steps.h): they stay where the device has
    // them, no block is told early, and it is always known whether they are finite.
    bool local_steps = false;
    // That make batches ahead of the passes (worker/feed/batch_loader.h).
    int loader_threads = 0;
    // A pass has ended, or its samples are there.
    std::function<void()> on_progress = [] {};
  };

  // Hears of a step's gradient while it is computed.
  class Observer {
   public:
    virtual ~Observer() = default;
    // The forward pass is done and gradients() are about to be overwritten. So far computing took
    // `compute_time`, without the fetching of samples. Called once per step, by the thread that
    // computes; an error ends the step.
    virtual absl::Status BeforeGradient(absl::Duration compute_time) = 0;
    // The gradient of `block` is final, and may be sent from now on. Perhaps on a thread of
    // torch's, and perhaps never: then it is final when Compute() has returned.
    virtual void OnBlock(BlockId block) = 0;
  };

  // What one step's gradient was computed from.
  struct Gradient {
    int64_t samples = 0;
    double loss_sum = 0;  // over samples
    Finite finite = Finite::kUnknown;
    // Trained elements whose parameters no pass has reached.
    ElementRuns absent;
    // Local steps that were left out, since their gradients were not finite.
    int64_t skipped_steps = 0;
    absl::Duration data_time;     // fetching samples
    absl::Duration compute_time;  // everything else but what the observer took
  };

  // What a step is computed on.
  struct Step {
    absl::Span<const int64_t> samples;
    // What will probably be computed next, in this order; for the loader threads. Right behind
    // `samples` in memory.
    absl::Span<const int64_t> upcoming;
    // The steps before it.
    int64_t number = 0;
    int epoch = 0;  // from 1
    // Of the first sample in the epoch's order.
    int64_t position = 0;
    // Samples of a pass, at most; at least 1.
    int64_t batch_size = 1;
    // How far the job was when the samples were handed out, and when those behind them were, in
    // parts of 1; local steps' learning rates follow it.
    double progress_begin = 0;
    double progress_end = 0;
    // Local steps: which fragment of the values was pulled for this step, and which one it is to
    // push.
    int pulled_fragment = kAllFragments;
    int pushed_fragment = kAllFragments;
  };

  // `model` is made of task.module().
  Learner(Task task, FlatModel* model, Options options);

  // Leaves in the model's gradients() and averaged() what the step pushes: the gradient of the mean
  // loss over all of its samples, computed in passes, clipped. Blocks are told early in the last
  // pass, on the CPU and where nothing is clipped or checked.
  // INTERNAL: the user's code failed; FAILED_PRECONDITION: it has replaced a tensor, or has a
  // parameter that came after the model was laid out;
  // INVALID_ARGUMENT: the dataset gave a batch that does not fit; or what the observer returned.
  absl::StatusOr<Gradient> Compute(const Step& step, Observer* observer);

 private:
  // The pass that begins at sample `begin` of the step, or of what comes after it.
  BatchLoader::Pass PassAt(const Step& step, size_t begin) const;
  // The batch of the pass that begins at sample `begin`.
  absl::StatusOr<Batch> TakeBatch(const Step& step, size_t begin);

  const Task task_;
  FlatModel* const model_;
  const Options options_;
  // Whether blocks are told early.
  const bool early_;
  BatchLoader loader_;
  GradientWatch watch_;
};

}  // namespace torchps
