#include "worker/stages/stages.h"

#include <string>

namespace torchps {

torch::Device ModelStage::DeviceOr(torch::Device otherwise) const {
  for (const bool buffers : {false, true}) {
    for (const torch::Tensor& tensor : buffers ? module_->buffers() : module_->parameters()) {
      if (tensor.defined()) return tensor.device();
    }
  }
  return otherwise;
}

torch::Tensor ModelStage::Forward(const torch::Tensor& input) const {
  torch::Tensor output = forward_(input);
  TORCH_CHECK(output.defined(), "the stage's forward() returned no tensor");
  return output;
}

StagesImpl::StagesImpl(std::vector<ModelStage> stages)
    : torch::nn::Module("Stages"), stages_(std::move(stages)) {
  TORCH_CHECK(!stages_.empty(), "torchps::Stages needs at least one stage");
  for (size_t i = 0; i < stages_.size(); ++i) {
    TORCH_CHECK(stages_[i].module() != nullptr, "stage ", i, " of torchps::Stages is null");
    register_module(std::to_string(i), stages_[i].module());
  }
}

torch::Tensor StagesImpl::forward(torch::Tensor input) {
  const torch::Device device = input.device();
  for (const ModelStage& stage : stages_) {
    input = stage.Forward(input.to(stage.DeviceOr(input.device())));
  }
  return input.to(device);
}

}  // namespace torchps
