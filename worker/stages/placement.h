#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/element_runs.h"
#include "common/model_layout.h"
#include "torch/nn/module.h"
#include "torch/types.h"

namespace torchps {

// Cuts a sequence of layers into `parts` consecutive parts such that the heaviest part is as light
// as possible. Returns the index of each part's first layer. Each part contains at least one layer.
// If several cuts are equal, the earlier parts get more layers. A free function without state.
// REQUIRES: 1 <= parts <= weights.size(), and weights are non-negative.
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
