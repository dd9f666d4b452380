#pragma once

#include <vector>

#include "absl/status/status.h"
#include "common/element_runs.h"
#include "common/model_layout.h"
#include "torch/nn/module.h"
#include "torch/types.h"

namespace torchps {

// The elements of a stage in a flat layout: a run of the trained ones and a run of the averaged
// ones. Either may be empty.
struct StagePart {
  torch::Device device = torch::kCPU;
  ElementRun trained;
  ElementRun averaged;
};

// On which devices the tensors of a module lie: all on one, or those of each stage of a
// torchps::Stages on one of its own. A value.
class Placement {
 public:
  // Any module, whole.
  Placement(torch::Device device) : devices_({device}) {}        // NOLINT: a device is a place
  Placement(torch::DeviceType type) : devices_({{type, -1}}) {}  // NOLINT
  // With one device as above; with several, stage k is on the k-th. REQUIRES: at least one.
  explicit Placement(std::vector<torch::Device> devices);

  const std::vector<torch::Device>& devices() const { return devices_; }
  // Whether the module is cut.
  bool has_stages() const { return devices_.size() > 1; }

  // For tests: what lies on the CPU counts as a device's memory, apart from the host's.
  Placement ApartFromHost() const;
  // All of it lies in the host's memory.
  bool on_host() const;

  // INVALID_ARGUMENT: there are several devices, and the module is no torchps::Stages of as many
  // stages, or two stages on different devices have a tensor in common.
  absl::Status Check(const torch::nn::Module& module) const;

  // Moves all tensors of `module` to where they are to lie. REQUIRES: Check(module) is OK. Throws
  // what torch throws.
  void Move(torch::nn::Module& module) const;

  // By stage, its elements in the module's layout; one part where the module is not cut.
  std::vector<StagePart> GetParts(const ModelLayout& layout) const;
  // The part that a tensor of this name is in.
  size_t GetPart(const std::string& name) const;

 private:
  std::vector<torch::Device> devices_;
  bool apart_ = false;
};

}  // namespace torchps
