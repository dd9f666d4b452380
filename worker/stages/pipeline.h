#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "torch/types.h"
#include "worker/stages/stages.h"

namespace torchps {

// Runs the forward and backward passes of a module in stages, each on a device of its own, on the
// parts of a batch: while one stage computes with one micro-batch, the others compute with others
// (worker/stages/pipeline_schedule.h has the order). backward() adds into the parameters' gradients
// as ever, so that what they hold at the end is the sum over micro-batches.
//
// A stage's graph ends at its input. What goes from stage to stage is the values of activations one
// way, and their gradients the other.
//
// A thread for each stage but the last, whose passes the caller of Run() computes: the loss, and
// all that it does beside, is on that thread. The others live as long as this object.
// Thread-compatible. Shares the modules; their tensors must not be written to while Run() is under
// way.
class Pipeline {
 public:
  struct Work {
    // The first stage's, one for each micro-batch; at least one.
    std::vector<torch::Tensor> inputs;
    // What backward() starts from, made of the last stage's output. An error ends the run.
    std::function<absl::StatusOr<torch::Tensor>(int micro_batch, const torch::Tensor& output)> loss;
    // Once, before the first backward pass of any stage. Forward passes of stages but the last may
    // be under way. An error ends the run.
    std::function<absl::Status()> before_backward;
  };

  // Stage k computes on devices[k], where its tensors are, and goes forward in `precision`, as the
  // loss is. REQUIRES: as many devices as stages.
  Pipeline(std::vector<ModelStage> stages, std::vector<torch::Device> devices,
           TrainingSpec::Precision precision = TrainingSpec::FLOAT32);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Returns when no stage computes any more: all have done all micro-batches, or one has failed,
  // and the others have ended with the pass that they had begun. Then gradients hold a part of the
  // sum. Returns the error of `loss` or `before_backward`; throws what a stage, or they, threw.
  absl::Status Run(const Work& work);

  // Where that was, after Run() has thrown or returned an error; else -1.
  int failed_stage() const { return failed_stage_; }

 private:
  // What is on its way to a stage.
  struct Passed {
    torch::Tensor tensor;  // undefined: no gradient
    bool wants_gradient = false;
  };
  // By the stage that it goes to.
  using Queues = std::vector<std::deque<Passed>>;
  // What a stage keeps of a micro-batch between its two passes.
  struct Held {
    torch::Tensor input;
    torch::Tensor output;  // of the last stage, the loss
  };
  struct Failure {
    int stage = -1;  // -1: none
    absl::Status status;
    std::exception_ptr thrown;  // null: the status tells it
  };

  // Computes the stage's part of each run, until this object ends.
  void Serve(int stage);
  // The stage's part of one run. What goes wrong stops it.
  void RunStage(int stage, const Work& work);
  absl::Status Forward(int stage, int micro_batch, const Work& work, std::deque<Held>* held);
  absl::Status Backward(int stage, int micro_batch, const Work& work, std::deque<Held>* held);

  void Put(Queues* queues, int stage, Passed passed) ABSL_LOCKS_EXCLUDED(mutex_);
  // The next one that comes to `stage`. CANCELLED: the run has failed.
  absl::StatusOr<Passed> Take(Queues* queues, int stage) ABSL_LOCKS_EXCLUDED(mutex_);
  // The first failure counts. All others follow from it.
  void Fail(Failure failure) ABSL_LOCKS_EXCLUDED(mutex_);

  int last() const { return static_cast<int>(stages_.size()) - 1; }

  const std::vector<ModelStage> stages_;
  const std::vector<torch::Device> devices_;
  const TrainingSpec::Precision precision_;

  Mutex mutex_;
  CondVar changed_;
  // Of the run under way; null between runs.
  const Work* work_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint64_t runs_ ABSL_GUARDED_BY(mutex_) = 0;
  // Threads that have not ended their part of it.
  size_t computing_ ABSL_GUARDED_BY(mutex_) = 0;
  Failure failure_ ABSL_GUARDED_BY(mutex_);
  Queues activations_ ABSL_GUARDED_BY(mutex_);
  Queues gradients_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the latest run.
  int failed_stage_ = -1;
  std::vector<std::thread> threads_;
};

}  // namespace torchps
