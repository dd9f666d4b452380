#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "torch/types.h"
#include "worker/pipeline/exchange.h"
#include "worker/stages/stages.h"

namespace torchps {

// The forward and backward passes of one stage of a model, whose other stages are in other
// processes: what comes from the neighbours and goes to them is the values of activations one way,
// and their gradients the other. The order is that of worker/stages/pipeline_schedule.h, which all
// stages keep, so nothing is agreed on but the number of micro-batches. backward() adds into the
// parameters' gradients as ever.
//
// What a stage returns is another tensor in the next one, so a tensor that two stages have in
// common gets a part of its gradient in each.
//
// Thread-compatible; computes on the calling thread. Shares the module, borrows the exchange.
class StagePasses {
 public:
  struct Work {
    // The leader's order that these passes are for; names what travels.
    int64_t order = 0;
    // They are numbered from `first` on.
    int first = 0;
    int micro_batches = 1;
    // Of the first stage: its input.
    std::function<absl::StatusOr<torch::Tensor>(int micro_batch)> input;
    // Of the last stage: what is made of its output; where backward() starts from.
    std::function<absl::StatusOr<torch::Tensor>(int micro_batch, const torch::Tensor& output)> loss;
    // Once, before the first backward pass of this stage.
    std::function<absl::Status()> before_backward;
    // A pass has ended.
    std::function<void()> on_progress;
  };

  // Forward passes, and what is made of the last one's output, are computed in `precision`.
  StagePasses(ModelStage stage, torch::Device device, TrainingSpec::Precision precision,
              Exchange* exchange)
      : stage_(std::move(stage)), device_(device), precision_(precision), exchange_(exchange) {}

  // Forward and backward passes of all micro-batches. Errors are those of the functions and of the
  // exchange; throws what the stage throws.
  absl::Status Train(const Work& work);

  // Forward passes alone. REQUIRES: the caller has switched gradients off.
  absl::Status Evaluate(const Work& work);

 private:
  // What is kept of a micro-batch between its two passes.
  struct Held {
    torch::Tensor input;
    torch::Tensor output;  // of the last stage, the loss
  };

  absl::StatusOr<Held> Forward(const Work& work, int micro_batch);
  absl::Status Backward(const Work& work, int micro_batch, const Held& held);

  const ModelStage stage_;
  const torch::Device device_;
  const TrainingSpec::Precision precision_;
  Exchange* const exchange_;
};

}  // namespace torchps
