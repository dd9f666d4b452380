#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "torch/nn/module.h"
#include "torch/types.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/model_layout.h"

namespace torchps {

// Wraps a module that is one stage of a larger model. The module's forward() accepts a tensor and
// returns a tensor. Accepts modules of torch, TORCH_MODULE holders, subclasses of
// torch::nn::Module, and torch::nn::Sequential. Copies share the module.
class ModelStage {
 public:
  // Wraps a module.
  template <typename Net>
  ModelStage(std::shared_ptr<Net> module) {  // NOLINT: {first, second} makes stages
    static_assert(std::is_base_of_v<torch::nn::Module, Net>, "a stage is a nn::Module");
    forward_ = [net = module.get()](const torch::Tensor& input) -> torch::Tensor {
      return net->forward(input);
    };
    module_ = std::move(module);
  }
  // The same for a TORCH_MODULE holder.
  template <typename Net>
  ModelStage(const torch::nn::ModuleHolder<Net>& module) : ModelStage(module.ptr()) {}  // NOLINT

  // Returns the wrapped module.
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }

  // Returns the device of the first parameter, or of the first buffer if there are no parameters.
  // Returns `otherwise` for a module without either.
  torch::Device DeviceOr(torch::Device otherwise) const;

  // Returns the output of forward() for `input`, which must be on the stage's device. Throws the
  // module's exceptions, and c10::Error if the module does not return a tensor.
  torch::Tensor Forward(const torch::Tensor& input) const;

 private:
  std::shared_ptr<torch::nn::Module> module_;
  // Borrows *module_.
  std::function<torch::Tensor(const torch::Tensor& input)> forward_;
};

// Cuts a module into stages; each stage's output is the next stage's input. So a model that is too
// large for one device can use several devices.
//
//   torchps::Stages net({torch::nn::Sequential(...), torch::nn::Sequential(...)});
//   return torchps::Task{net, torchps::CrossEntropy(), data};
//
// Stage k is the submodule "k", so the parameters are "0.weight", "1.0.bias" and so on, on any
// device. Workers with one device and workers with one device per stage can train the same job.
//
// If a worker uses as many devices as stages, stage k runs on the k-th device, and parts of a batch
// train on all devices at once (torchps/worker/stages/pipeline.h). Otherwise, forward() runs the
// stages one after the other.
class StagesImpl final : public torch::nn::Module {
 public:
  // REQUIRES: at least one stage.
  explicit StagesImpl(std::vector<ModelStage> stages);

  // Runs all stages in order, each on the device of the stage's parameters. Returns the result on
  // the device of `input`. Throws the stages' exceptions.
  torch::Tensor forward(torch::Tensor input);

  // Returns the stages in order.
  const std::vector<ModelStage>& stages() const { return stages_; }

 private:
  const std::vector<ModelStage> stages_;
};

// The TORCH_MODULE holder of StagesImpl.
class Stages : public torch::nn::ModuleHolder<StagesImpl> {
 public:
  using torch::nn::ModuleHolder<StagesImpl>::ModuleHolder;

  // Cuts a module into these stages.
  Stages(std::initializer_list<ModelStage> stages) : Stages(std::vector<ModelStage>(stages)) {}
};

// Cuts a sequence of layers into `parts` consecutive parts such that the heaviest part is as light
// as possible. Returns the index of each part's first layer. Each part contains at least one layer.
// If several cuts are equally good, the earlier parts get more layers. A free function without
// state. REQUIRES: 1 <= parts <= weights.size(), and weights are non-negative.
std::vector<size_t> EvenCut(const std::vector<int64_t>& weights, size_t parts);

// Elements of a stage in a flat layout: one run of trained and one run of averaged elements. Either
// may be empty.
struct StagePart {
  torch::Device device = torch::kCPU;
  ElementRun trained;
  ElementRun averaged;
};

// Assigns a module's tensors to devices: the whole module to one device, or each stage of a
// torchps::Stages to a separate device. A value type.
class Placement {
 public:
  // Places any module as a whole.
  Placement(torch::Device device) : devices_({device}) {}        // NOLINT: implicit by design
  Placement(torch::DeviceType type) : devices_({{type, -1}}) {}  // NOLINT
  // Places the whole module on a single device, or stage k on the k-th of several devices.
  // REQUIRES: at least one device.
  explicit Placement(std::vector<torch::Device> devices);

  const std::vector<torch::Device>& devices() const { return devices_; }
  // True if the module is cut into stages.
  bool has_stages() const { return devices_.size() > 1; }

  // For tests: treats CPU memory like device memory that is separate from the host's.
  Placement ApartFromHost() const;
  // True if the tensors are in host memory.
  bool on_host() const;

  // INVALID_ARGUMENT: several devices are given, but the module is not a torchps::Stages with as
  // many stages, or two stages on different devices share a tensor.
  absl::Status Check(const torch::nn::Module& module) const;

  // Moves the module's tensors to their devices. REQUIRES: Check(module) is OK. Throws torch's
  // exceptions.
  void Move(torch::nn::Module& module) const;

  // Returns each stage's elements in the module's layout; one part if the module is not cut.
  std::vector<StagePart> GetParts(const ModelLayout& layout) const;
  // Returns the index of the part that contains the named tensor.
  size_t GetPart(const std::string& name) const;

 private:
  std::vector<torch::Device> devices_;
  bool apart_ = false;
};

}  // namespace torchps
