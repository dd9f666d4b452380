#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/pipeline/exchange.h"
#include "torchps/worker/stages/stages.h"
#include "torchps/worker/training_observer.h"

namespace torchps {

// Runs the forward and backward passes of one stage, while other processes run the other stages.
// Exchanges activation values and gradients with the neighbour stages. The stages follow the order
// in torchps/worker/stages/pipeline.h, so they only have to agree on the number of micro-batches.
// backward() adds to the parameters' gradients as usual.
//
// The next stage receives the stage's output as a new tensor. So a tensor shared by two stages gets
// a part of the gradient in each.
//
// Thread-compatible; computes on the calling thread. Shares the module, borrows the exchange.
class StagePasses {
 public:
  struct Work {
    // The number of the leader's order for these passes. It is part of the parcels' names.
    int64_t order = 0;
    // The number of the first micro-batch, in the parcels' names.
    int first = 0;
    int micro_batches = 1;
    // Returns the input; first stage only.
    std::function<absl::StatusOr<torch::Tensor>(int micro_batch)> input;
    // Computes the loss from the output, as the start of backward(); last stage only.
    std::function<absl::StatusOr<torch::Tensor>(int micro_batch, const torch::Tensor& output)> loss;
    // Called once, before this stage's first backward pass.
    std::function<absl::Status()> before_backward;
    // OnProgress() is called after each pass.
    TrainingObserver* observer = TrainingObserver::None();
  };

  // Computes forward passes and `loss` in `precision`.
  StagePasses(ModelStage stage, torch::Device device, TrainingSpec::Precision precision,
              Exchange* exchange)
      : stage_(std::move(stage)), device_(device), precision_(precision), exchange_(exchange) {}

  // Runs the forward and backward passes of each micro-batch. Returns errors of the functions and
  // the exchange; throws the stage's exceptions.
  absl::Status Train(const Work& work);

  // Runs the forward passes only. REQUIRES: the caller disabled gradients.
  absl::Status Evaluate(const Work& work);

 private:
  // Tensors kept between the two passes of a micro-batch.
  struct Held {
    torch::Tensor input;
    torch::Tensor output;  // in the last stage, the loss
  };

  absl::StatusOr<Held> Forward(const Work& work, int micro_batch);
  absl::Status Backward(const Work& work, int micro_batch, const Held& held);

  const ModelStage stage_;
  const torch::Device device_;
  const TrainingSpec::Precision precision_;
  Exchange* const exchange_;
};

}  // namespace torchps
