#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace torchps {

// A module that is part of another one: its forward() takes a tensor and returns one. Of any class:
// torch's own, TORCH_MODULE's, a plain subclass of torch::nn::Module, torch::nn::Sequential.
// A value that shares the module with its copies.
class ModelStage {
 public:
  template <typename Net>
  ModelStage(std::shared_ptr<Net> module) {  // NOLINT: {first, second} makes stages of modules
    static_assert(std::is_base_of_v<torch::nn::Module, Net>, "a stage is a nn::Module");
    forward_ = [net = module.get()](const torch::Tensor& input) -> torch::Tensor {
      return net->forward(input);
    };
    module_ = std::move(module);
  }
  template <typename Net>
  ModelStage(const torch::nn::ModuleHolder<Net>& module) : ModelStage(module.ptr()) {}  // NOLINT

  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }

  // Where it computes: the device of its first parameter, or else buffer. `otherwise` where it has
  // neither.
  torch::Device DeviceOr(torch::Device otherwise) const;

  // What its forward() makes of `input`, which is where the stage computes. Throws what it throws,
  // and c10::Error where it returns no tensor.
  torch::Tensor Forward(const torch::Tensor& input) const;

 private:
  std::shared_ptr<torch::nn::Module> module_;
  // Borrows *module_.
  std::function<torch::Tensor(const torch::Tensor& input)> forward_;
};

// A module that is cut into stages, each of which takes what the one before it returns; what is too
// large for one device lies on several.
//
//   torchps::Stages net({torch::nn::Sequential(...), torch::nn::Sequential(...)});
//   return torchps::Task{net, torchps::CrossEntropy(), data};
//
// Stage k is the submodule "k", so that its parameters are "0.weight", "1.0.bias" and so on,
// wherever they lie: workers with one device and with one for each stage train the same job.
//
// A worker with as many devices as there are stages puts stage k on the k-th, and trains with
// forward and backward passes of parts of a batch on all of them at once
// (worker/stages/pipeline.h). Everything else calls forward().
class StagesImpl final : public torch::nn::Module {
 public:
  // REQUIRES: at least one stage.
  explicit StagesImpl(std::vector<ModelStage> stages);

  // All stages in their order, each where its parameters are. The result is where `input` is.
  // Throws what a stage throws.
  torch::Tensor forward(torch::Tensor input);

  const std::vector<ModelStage>& stages() const { return stages_; }

 private:
  const std::vector<ModelStage> stages_;
};

class Stages : public torch::nn::ModuleHolder<StagesImpl> {
 public:
  using torch::nn::ModuleHolder<StagesImpl>::ModuleHolder;

  Stages(std::initializer_list<ModelStage> stages) : Stages(std::vector<ModelStage>(stages)) {}
};

}  // namespace torchps
