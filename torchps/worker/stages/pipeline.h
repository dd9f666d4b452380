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
#include "torch/types.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/stages/stages.h"

// Orders the work of a model's stages on the parts of a batch, and runs the stages in this order.
// The order is one forward, one backward (Narayanan et al. 2019, "PipeDream"), in the form of
// Megatron-LM (Narayanan et al. 2021): all passes of a batch end before the next batch begins.

namespace torchps {

// Describes one pass of a stage with one micro-batch.
struct PipelineStep {
  bool forward = true;  // false: backward
  int micro_batch = 0;
};

// Returns all passes of stage `stage` of `stages` with `micro_batches` micro-batches, in order. A
// free function without state. The stage begins with as many forward passes as there are later
// stages. Then backward and forward passes alternate, and the remaining backward passes follow.
// Micro-batches are processed in order in both directions.
//
// The stage holds a micro-batch's activations from the forward pass to the backward pass, for at
// most `stages - stage` micro-batches at a time. If each forward pass needs time f and each
// backward pass time b, the total is (micro_batches + stages - 1) * (f + b). So filling and
// draining the pipeline costs (stages - 1) * (f + b).
//
// REQUIRES: 0 <= stage < stages, micro_batches >= 1.
std::vector<PipelineStep> OneForwardOneBackward(int stage, int stages, int micro_batches);

// Runs the forward and backward passes of a module in stages, each on a separate device, on parts
// of a batch. While one stage computes a micro-batch, the other stages compute other micro-batches
// (OneForwardOneBackward() defines the order). backward() adds to the parameters' gradients as
// usual, so they finally contain the sum over the micro-batches.
//
// Each stage's autograd graph ends at the stage's input. Stages exchange activation values and
// gradients.
//
// Uses one thread per stage, except for the last stage, which the caller of Run() computes. So
// `loss` runs on the caller's thread. The threads run until this object is destroyed.
// Thread-compatible. Shares the modules; their tensors must not be modified during Run().
class Pipeline {
 public:
  struct Work {
    // Inputs of the first stage, one per micro-batch; at least one.
    std::vector<torch::Tensor> inputs;
    // Computes the loss from the last stage's output, as the start of backward(). Errors end the
    // run.
    std::function<absl::StatusOr<torch::Tensor>(int micro_batch, const torch::Tensor& output)> loss;
    // Called once, before the first backward pass of any stage. Forward passes of earlier stages
    // may be in progress. Errors end the run.
    std::function<absl::Status()> before_backward;
  };

  // Stage k computes on devices[k], which must hold the stage's tensors. Forward passes and the
  // loss use `precision`. REQUIRES: as many devices as stages.
  Pipeline(std::vector<ModelStage> stages, std::vector<torch::Device> devices,
           TrainingSpec::Precision precision = TrainingSpec::FLOAT32);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Runs all micro-batches through all stages. After a failure, the other stages stop after their
  // current pass, and the gradients contain a part of the sum. Returns when all stages have
  // stopped. Returns the error of `loss` or `before_backward`; throws the exceptions of stages and
  // of these functions.
  absl::Status Run(const Work& work);

  // The failed stage after Run() threw or returned an error; otherwise -1.
  int failed_stage() const { return failed_stage_; }

 private:
  // Data sent to a stage.
  struct Passed {
    torch::Tensor tensor;  // undefined: there is no gradient
    bool wants_gradient = false;
  };
  // The waiting data, by receiving stage.
  using Queues = std::vector<std::deque<Passed>>;
  // Tensors that a stage keeps between the two passes of a micro-batch.
  struct Held {
    torch::Tensor input;
    torch::Tensor output;  // in the last stage, the loss
  };
  struct Failure {
    int stage = -1;  // -1: none
    absl::Status status;
    std::exception_ptr thrown;  // null: `status` contains the error
  };

  // The function of a stage's thread. Computes the stage in each run, until this object is
  // destroyed.
  void Serve(int stage);
  // Computes one stage in one run. Errors stop the run.
  void RunStage(int stage, const Work& work);
  absl::Status Forward(int stage, int micro_batch, const Work& work, std::deque<Held>* held);
  absl::Status Backward(int stage, int micro_batch, const Work& work, std::deque<Held>* held);

  void Put(Queues* queues, int stage, Passed passed) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the next item for `stage`. CANCELLED: the run failed.
  absl::StatusOr<Passed> Take(Queues* queues, int stage) ABSL_LOCKS_EXCLUDED(mutex_);
  // Records a failure. Ignores all but the first of a run, because the later ones result from it.
  void Fail(Failure failure) ABSL_LOCKS_EXCLUDED(mutex_);

  int last() const { return static_cast<int>(stages_.size()) - 1; }

  const std::vector<ModelStage> stages_;
  const std::vector<torch::Device> devices_;
  const TrainingSpec::Precision precision_;

  Mutex mutex_;
  CondVar changed_;
  // Work of the current run; null between runs.
  const Work* work_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint64_t runs_ ABSL_GUARDED_BY(mutex_) = 0;
  // Number of threads that are still computing.
  size_t computing_ ABSL_GUARDED_BY(mutex_) = 0;
  Failure failure_ ABSL_GUARDED_BY(mutex_);
  Queues activations_ ABSL_GUARDED_BY(mutex_);
  Queues gradients_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // Result of the latest run.
  int failed_stage_ = -1;
  std::vector<std::thread> threads_;
};

}  // namespace torchps
