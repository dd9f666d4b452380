#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/clock.h"
#include "common/element_runs.h"
#include "common/ids.h"
#include "proto/job.pb.h"
#include "worker/device/encoded_outbox.h"
#include "worker/device/gradient_outbox.h"
#include "worker/device/outbox.h"
#include "worker/device/work_end.h"
#include "worker/feed/batch_loader.h"
#include "worker/feed/batch_uploader.h"
#include "worker/finish_gradient.h"
#include "worker/flat_model.h"
#include "worker/gradient/gradient_watch.h"
#include "worker/precision/loss_scaler.h"
#include "worker/stages/pipeline.h"
#include "worker/task.h"

namespace torchps {

// The part of a worker that computes: the gradients of samples. Knows no server
// and no job.
//
// Of a model whose stages lie on devices of their own (FlatModel::devices()) a pass is cut into
// micro-batches, with which the stages compute at the same time (worker/stages/pipeline.h). The
// gradient is the same but for rounding, and for what depends on who is in a batch with whom (batch
// norm) or on who draws first (dropout).
//
// Thread-compatible; all of its work is done by the calling thread (and torch's, and those of
// stages but the last). Borrows the model. What the user's module, objective or dataset throw or
// return comes back as a status.
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
    // For tests: makes what brings batches to the device, in place of a CudaBatchUploader. Null: a
    // GPU has a CudaBatchUploader, the CPU needs nothing.
    std::function<std::unique_ptr<BatchUploader>(torch::Device device)> make_lift;
    // That a pass is cut into where the model is in stages, or as many as it has samples. 0: two
    // for each stage.
    int micro_batches = 0;
    // A pass has ended, or its samples are there.
    std::function<void()> on_progress = [] {};
    // Of so many replicas this one computes its part of each pass (worker/feed/part_of_pass.h).
    size_t replica = 0;
    size_t replicas = 1;
    // A pass of so many samples, over all replicas, is about to be computed.
    std::function<void(size_t samples)> on_pass = [](size_t) {};
    // Of training.precision FLOAT16: what all replicas of a group have in common. Null: this one
    // has its own.
    std::shared_ptr<LossScaler> scaler;
    // Takes lines that are for people.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // The scale is another one after this step.
    std::function<void(const LossScaler& scaler)> on_scale = [](const LossScaler&) {};
  };

  // Hears of a step's gradient while it is computed.
  class Observer {
   public:
    virtual ~Observer() = default;
    // The forward pass is done. So far computing took `compute_time`, without the fetching of
    // samples. This and the next one are called once per step, by the thread that computes; an
    // error ends the step.
    virtual absl::Status BeforeGradient(absl::Duration compute_time) = 0;
    // The model's gradients() are about to be overwritten, and blocks of them to be told: on the
    // host before the backward pass, else once the device was given it.
    virtual absl::Status BeforeBlocks() { return absl::OkStatus(); }
    // The weight of the gradient, where that is not its samples. Called at most once, after
    // BeforeBlocks() and before any block is told.
    virtual void OnWeight(double /*weight*/) {}
    // Both, where nothing lies between them.
    absl::Status BeforeGradientAndBlocks(absl::Duration compute_time) {
      const absl::Status status = BeforeGradient(compute_time);
      return status.ok() ? BeforeBlocks() : status;
    }
    // The gradient of `block` is final, and may be sent from now on. Perhaps on a thread of
    // torch's, of a stage or of the device link's, and perhaps never: then it is final when
    // Compute() has returned.
    virtual void OnBlock(BlockId block) = 0;
  };

  // What one step's gradient was computed from.
  struct Gradient {
    int64_t samples = 0;
    double loss_sum = 0;  // over samples
    // Of the gradient in an update: the sum of WeightedLoss::weight. nullopt: its samples.
    absl::optional<double> weight;
    Finite finite = Finite::kUnknown;
    // Trained elements whose parameters no pass has reached.
    ElementRuns absent;
    // Local steps that were left out, since their gradients were not finite.
    int64_t skipped_steps = 0;
    // Local steps that were left out as overflows (Finite::kOverflow), or 1 where this step is one.
    int64_t overflows = 0;
    absl::Duration data_time;  // fetching samples
    // Everything else but what the observer took; of that, what a device computed meanwhile counts.
    absl::Duration compute_time;
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
    // As StepLoop::StepWork has them.
    torchps::Step push_step = 1;
    uint32_t progress = 0;
    int64_t share = 0;
  };

  // `model` is made of task.module(), which is in training mode from now on (BeginTraining() in
  // worker/module_mode.h). REQUIRES: where it has several devices, that is a Stages.
  Learner(Task task, FlatModel* model, Options options);

  // Leaves in the model's gradients() and averaged() what the step pushes: the gradient of the mean
  // loss over all of its samples, computed in passes, clipped. Blocks are told early in the last
  // pass, where nothing is clipped or checked, on the CPU and where a device link copies them.
  // INTERNAL: the user's code failed; FAILED_PRECONDITION: it has replaced a tensor, or has a
  // parameter that came after the model was laid out;
  // INVALID_ARGUMENT: the dataset gave a batch that does not fit; or what the observer returned.
  absl::StatusOr<Gradient> Compute(const Step& step, Observer* observer);

  // The two halves of Compute(), for who adds up the gradients of several replicas in between.
  // ComputePart() leaves the gradient of this replica's part of the step where the device has it;
  // over all replicas the sum is that of the mean loss. `samples` is what this replica has
  // computed, perhaps nothing, and `absent` what it has not reached.
  absl::StatusOr<Gradient> ComputePart(const Step& step, Observer* observer);
  // What the model's gradients() and averaged() hold is what the step pushes; sets `finite` and
  // `absent`, and adds the time to `compute_time`.
  absl::Status Finish(Gradient* gradient);

 private:
  absl::StatusOr<Gradient> ComputePasses(const Step& step, Observer* observer);
  // This replica's part of the pass that begins at sample `begin` of the step, or of what comes
  // after it.
  BatchLoader::Pass PassAt(const Step& step, size_t begin) const;
  // The batch of that pass, which is not empty.
  absl::StatusOr<Batch> TakeBatch(const Step& step, size_t begin);
  // Finish() where the device encodes the gradient.
  absl::StatusOr<Finite> FinishEncoded(ElementRuns* absent);
  // How long the device has had nothing to do since `told`, when it was given all of a step.
  // `computed`: when it was done with that; nullopt: it was done by then.
  absl::Duration IdleSince(absl::Duration told, const absl::optional<WorkEnd>& computed) const;

  // One forward and backward pass of a batch.
  struct PassWork {
    Batch batch;
    int micro_batches = 1;
    // The steps before it.
    int64_t step = 0;
    // Samples of the pass and of the step.
    double samples = 1;
    double step_samples = 1;
    // Before anything is added to gradients, with the weight of the pass. An error ends the pass.
    std::function<absl::Status(double weight)> before_backward;
  };
  // Adds the gradient of the pass to the model's. Returns the mean loss, which a device may still
  // be about to compute.
  absl::StatusOr<torch::Tensor> RunPass(PassWork work);
  absl::StatusOr<torch::Tensor> RunPassInStages(PassWork work);
  // A forward pass of a whole batch, in the job's precision.
  absl::StatusOr<Loss> ForwardToLoss(Batch batch, int64_t step) const;
  // The loss as backward() starts from it: multiplied by the scale, if there is one.
  torch::Tensor Scaled(const torch::Tensor& loss) const;
  // How many micro-batches a pass of so many samples is cut into.
  int MicroBatches(int64_t samples) const;

  const Task task_;
  FlatModel* const model_;
  const Options options_;
  // Whether the gradients have to be copied to the host.
  const bool apart_;
  // What does that, encoded or as it is; both null: nothing, or ToHost() does it.
  EncodedOutbox* const encoded_;
  GradientOutbox* const copied_;
  // Either.
  Outbox* const outbox_;
  // Whether blocks are told early.
  const bool early_;
  // Null: a pass copies its batch itself, if it has to, and the host waits.
  const std::unique_ptr<BatchUploader> lift_;
  BatchLoader loader_;
  GradientWatch watch_;
  // Null where losses are not scaled.
  const std::shared_ptr<LossScaler> scaler_;
  // Null where the model is on one device.
  const std::unique_ptr<Pipeline> pipeline_;
};

// Learner::Compute(), or what does the same in its place.
using ComputeGradient = std::function<absl::StatusOr<Learner::Gradient>(
    const Learner::Step& step, Learner::Observer* observer)>;

}  // namespace torchps
