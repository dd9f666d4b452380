#include "torchps/worker/pipeline/stage_passes.h"

#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "torchps/worker/precision/precision.h"
#include "torchps/worker/stages/pipeline.h"

namespace torchps {

absl::Status StagePasses::Train(const Work& work) {
  std::deque<Held> held;
  for (const PipelineStep& step :
       OneForwardOneBackward(exchange_->stage(), exchange_->stages(), work.micro_batches)) {
    if (step.forward) {
      absl::StatusOr<Held> kept = Forward(work, work.first + step.micro_batch);
      if (!kept.ok()) return kept.status();
      held.push_back(*std::move(kept));
    } else {
      const Held kept = std::move(held.front());
      held.pop_front();
      if (absl::Status status = Backward(work, work.first + step.micro_batch, kept); !status.ok())
        return status;
    }
    work.observer->OnProgress();
  }
  return absl::OkStatus();
}

absl::Status StagePasses::Evaluate(const Work& work) {
  for (int i = 0; i < work.micro_batches; ++i) {
    const absl::StatusOr<Held> kept = Forward(work, work.first + i);
    if (!kept.ok()) return kept.status();
    work.observer->OnProgress();
  }
  return absl::OkStatus();
}

absl::StatusOr<StagePasses::Held> StagePasses::Forward(const Work& work, int micro_batch) {
  const Exchange::Name name = {TensorMessage::ACTIVATION, work.order, micro_batch};
  Held kept;
  if (exchange_->leads()) {
    absl::StatusOr<torch::Tensor> input = work.input(micro_batch);
    if (!input.ok()) return input.status();
    kept.input = input->to(device_);
  } else {
    const absl::StatusOr<Exchange::Delivery> delivery =
        exchange_->Take(exchange_->stage() - 1, name);
    if (!delivery.ok()) return delivery.status();
    if (!delivery->tensor.defined()) {
      return absl::InvalidArgumentError("received an activation without a tensor");
    }
    kept.input = delivery->tensor.to(device_);
    if (delivery->parcel.tensor().wants_gradient()) {
      if (!kept.input.is_floating_point()) {
        return absl::InvalidArgumentError("a gradient is requested for an integer activation");
      }
      kept.input.set_requires_grad(true);
    }
  }
  const Autocast autocast(precision_, device_.type());
  kept.output = stage_.Forward(kept.input);
  if (exchange_->is_last()) {
    absl::StatusOr<torch::Tensor> loss = work.loss(micro_batch, kept.output);
    if (!loss.ok()) return loss.status();
    kept.output = *std::move(loss);
  } else {
    TensorMessage parcel = Exchange::Of(name);
    parcel.mutable_tensor()->set_wants_gradient(kept.output.requires_grad());
    exchange_->Send(exchange_->stage() + 1, std::move(parcel), kept.output.detach());
  }
  return kept;
}

absl::Status StagePasses::Backward(const Work& work, int micro_batch, const Held& held) {
  const Exchange::Name name = {TensorMessage::GRADIENT, work.order, micro_batch};
  if (micro_batch == work.first) {
    if (absl::Status status = work.before_backward(); !status.ok()) return status;
  }
  if (exchange_->is_last()) {
    held.output.backward();
  } else {
    const absl::StatusOr<Exchange::Delivery> delivery =
        exchange_->Take(exchange_->stage() + 1, name);
    if (!delivery.ok()) return delivery.status();
    // Frozen stages need no gradient. The gradient is undefined if the loss does not depend on the
    // output.
    if (held.output.requires_grad() && delivery->tensor.defined()) {
      torch::autograd::backward({held.output}, {delivery->tensor.to(device_)});
    }
  }
  if (!exchange_->leads()) {
    exchange_->Send(exchange_->stage() - 1, Exchange::Of(name), held.input.grad());
  }
  return absl::OkStatus();
}

}  // namespace torchps
