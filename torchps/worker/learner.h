#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/device/device_link.h"
#include "torchps/worker/device/encoded_outbox.h"
#include "torchps/worker/device/gradient_outbox.h"
#include "torchps/worker/device_factory.h"
#include "torchps/worker/feed/batch_loader.h"
#include "torchps/worker/finish_gradient.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/gradient/gradient_watch.h"
#include "torchps/worker/loop/step_work.h"
#include "torchps/worker/precision/precision.h"
#include "torchps/worker/stages/pipeline.h"
#include "torchps/worker/task.h"
#include "torchps/worker/training_observer.h"

namespace torchps {

// Computes the gradients of samples. Independent of servers and jobs.
//
// If the model's stages are on different devices (FlatModel::devices()), a pass is cut into
// micro-batches so that the stages compute in parallel (torchps/worker/stages/pipeline.h). The
// gradient is the same up to rounding, except with layers that depend on the other samples in a
// batch (batch norm) or on the order of random draws (dropout).
//
// Thread-compatible: the calling thread and torch's threads compute. If the model is in stages,
// each stage but the last also has a thread. Borrows the model. Exceptions and errors of the user's
// module, objective and dataset are returned as a status.
class Learner {
 public:
  struct Options {
    // Settings for clipping and for gradients that are not finite.
    TrainingSpec training;
    // The model's blocks, for reporting them early. Borrowed, like `clock`.
    const BlockMap* block_map = nullptr;
    const Clock* clock = nullptr;
    // The job's seed. Seeds for Callbacks::augment are derived from it.
    uint64_t seed = 1;
    // Computes gradients for local steps (torchps/worker/local_steps.h). Gradients stay on the
    // device, blocks are not reported early, and each gradient is checked for finiteness.
    bool local_steps = false;
    // Threads that make batches ahead of the passes (torchps/worker/feed/batch_loader.h).
    int loader_threads = 0;
    // Makes the batch uploader. Borrowed.
    const DeviceFactory* device_factory = GpuFactory::Get();
    // Micro-batches per pass if the model is in stages, limited by the number of samples. 0: two
    // for each stage.
    int micro_batches = 0;
    // This replica's number and the number of replicas. Each replica computes a part of each pass
    // (torchps/worker/feed/batch_loader.h).
    size_t replica = 0;
    size_t replicas = 1;
    // The scaler that all replicas of a group share, for training.precision FLOAT16. Null: this
    // learner makes one.
    std::shared_ptr<LossScaler> scaler;
    // Borrowed.
    TrainingObserver* observer = TrainingObserver::None();
  };

  // Receives the events of one step while its gradient is computed. (TrainingObserver receives
  // events of the whole training.) Trainer implements it to push the gradient.
  class Observer {
   public:
    virtual ~Observer() = default;
    // Called after the first forward pass of the step. `compute_time` is the computing time so far,
    // without fetching samples. This function and BeforeBlocks() are called once per step, on the
    // computing thread. An error ends the step.
    virtual absl::Status BeforeGradient(absl::Duration compute_time) = 0;
    // Called before gradients() are overwritten and blocks are reported. If the model is on the
    // host, that is before the first backward pass; otherwise, it is after the last backward pass
    // was enqueued on the device.
    virtual absl::Status BeforeBlocks() { return absl::OkStatus(); }
    // Sets the weight of the gradient, if it is not the number of samples. Called at most once,
    // after BeforeBlocks() and before any OnBlock().
    virtual void OnWeight(double /*weight*/) {}
    // Calls BeforeGradient(), then BeforeBlocks(). For callers that do no work between the two.
    absl::Status BeforeGradientAndBlocks(absl::Duration compute_time) {
      const absl::Status status = BeforeGradient(compute_time);
      return status.ok() ? BeforeBlocks() : status;
    }
    // Called when the gradient of `block` is final and may be sent. The caller may be a thread of
    // torch, of a stage or of the device link. Blocks without a call are final when Compute()
    // returns.
    virtual void OnBlock(BlockId block) = 0;
  };

  // The result of a step's computation.
  struct Gradient {
    int64_t samples = 0;
    double loss_sum = 0;  // sum over the samples
    // The gradient's weight in an update: the sum of WeightedLoss::weight. nullopt: the number of
    // samples.
    std::optional<double> weight;
    Finite finite = Finite::kUnknown;
    // Trained elements of parameters that the passes did not reach.
    ElementRuns absent;
    // Local steps skipped because the gradient was not finite.
    int64_t skipped_steps = 0;
    // The number of local steps that overflowed (Finite::kOverflow). Without local steps, 1 if this
    // step overflowed, else 0.
    int64_t overflows = 0;
    absl::Duration data_time;  // fetching samples
    // All time except `data_time` and the time in the observer while no device computed.
    absl::Duration compute_time;
  };

  // `model` must be made from task.module(), which is in training mode from now on (BeginTraining()
  // in torchps/worker/torch_error.h). REQUIRES: if the model is on several devices, the module is a
  // Stages.
  Learner(Task task, FlatModel* model, Options options);

  // Computes a step. Leaves the clipped gradient of the mean loss over the samples in gradients(),
  // and the buffers in averaged(). May run several passes. Reports blocks early, in the last pass,
  // if the model is on the CPU or has a device link, and gradients are neither clipped nor checked
  // as a whole.
  //
  // INTERNAL if the user's code failed. FAILED_PRECONDITION if it replaced a tensor, or added a
  // parameter after the model was laid out. INVALID_ARGUMENT if the dataset returned a batch of the
  // wrong size. Also returns the observer's errors.
  absl::StatusOr<Gradient> Compute(const StepWork& step, Observer* observer);

  // ComputePart() and Finish() are the two halves of Compute(), for callers that add up the
  // gradients of several replicas in between. ComputePart() leaves the gradient of this replica's
  // part on the device. The sum over all replicas is the gradient of the mean loss. `samples`
  // counts this replica's samples and may be 0; `absent` are the elements that this replica did not
  // reach.
  absl::StatusOr<Gradient> ComputePart(const StepWork& step, Observer* observer);
  // Prepares gradients() and averaged() for the push. Sets `finite` and `absent`, and adds to
  // `compute_time`.
  absl::Status Finish(Gradient* gradient);

 private:
  // How a step's gradient gets from the passes to the push.
  struct Route {
    enum class Kind {
      // The passes write the gradient to the host memory that is pushed.
      kInPlace,
      // The gradient stays where the passes wrote it, for the inner optimizer of local steps.
      kKept,
      // Finish() copies the whole gradient from the device to the host.
      kCopied,
      // `copied` brings each block to the host once it is final.
      kCopiedByBlock,
      // The device encodes each block once it is final, or all blocks in Finish() if the gradient
      // is clipped or checked as a whole. `encoded` brings the records to the host.
      kEncoded,
    };

    Kind kind = Kind::kInPlace;
    // True if blocks are reported in the last pass, before the gradient is complete.
    bool reports_early = false;
    // `copied` is set only for kCopiedByBlock, `encoded` only for kEncoded.
    GradientOutbox* copied = nullptr;
    EncodedOutbox* encoded = nullptr;

    bool leaves_device() const { return kind != Kind::kInPlace && kind != Kind::kKept; }
    // Returns the outbox, or null.
    Outbox* outbox() const { return encoded != nullptr ? static_cast<Outbox*>(encoded) : copied; }
  };
  // Determines the route, and makes the model's GradientOutbox if the route uses one.
  static Route ChooseRoute(const Options& options, FlatModel* model);

  absl::StatusOr<Gradient> ComputePasses(const StepWork& step, Observer* observer);
  // Returns this replica's part of the pass that begins at sample `begin`, counted over the step's
  // samples followed by the upcoming samples.
  BatchLoader::Pass PassAt(const StepWork& step, size_t begin) const;
  // Returns the batch of PassAt(step, begin). REQUIRES: that pass has samples.
  absl::StatusOr<Batch> TakeBatch(const StepWork& step, size_t begin);
  // Completes the gradient's route to the push. Sets `absent` only if the device encodes.
  absl::StatusOr<Finite> FinishRoute(ElementRuns* absent);
  absl::StatusOr<Finite> FinishEncoded(ElementRuns* absent);
  // Returns how long the device has been idle since `told`. By then, the step's work was enqueued
  // on the device. `computed` gives the end of this work; nullopt means that the work had ended by
  // `told`.
  absl::Duration IdleSince(absl::Duration told, const std::optional<WorkEnd>& computed) const;

  // A forward and a backward pass of a batch.
  struct PassWork {
    Batch batch;
    int micro_batches = 1;
    // The number of earlier steps.
    int64_t step = 0;
    // The numbers of samples in this replica's part of the pass, and in the step.
    double samples = 1;
    double step_samples = 1;
    // Called with the weight of the pass before gradients change. An error ends the pass.
    std::function<absl::Status(double weight)> before_backward;
  };
  // Adds the gradient of the pass to the model's. Returns the mean loss, which a device may still
  // be computing.
  absl::StatusOr<torch::Tensor> RunPass(PassWork work);
  absl::StatusOr<torch::Tensor> RunPassInStages(PassWork work);
  // Runs the forward pass of a whole batch in the job's precision.
  absl::StatusOr<Loss> ForwardToLoss(Batch batch, int64_t step) const;
  // Returns the loss multiplied by the loss scale, if any. backward() starts from the result.
  torch::Tensor Scaled(const torch::Tensor& loss) const;
  // Returns the number of micro-batches for a pass of `samples` samples.
  int MicroBatches(int64_t samples) const;

  const Task task_;
  FlatModel* const model_;
  const Options options_;
  const Route route_;
  // Uploads batches while the device computes. Null: each pass copies its batch, if the model is on
  // a device, and waits for the copy.
  const std::unique_ptr<BatchUploader> lift_;
  BatchLoader loader_;
  GradientWatch watch_;
  // Null if losses are not scaled.
  const std::shared_ptr<LossScaler> scaler_;
  // Null if the model is on one device.
  const std::unique_ptr<Pipeline> pipeline_;
};

// Learner::Compute(), or a function that replaces it, such as LocalSteps::Compute().
using ComputeGradient = std::function<absl::StatusOr<Learner::Gradient>(
    const StepWork& step, Learner::Observer* observer)>;

}  // namespace torchps
