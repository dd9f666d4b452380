#pragma once

#include <cstdint>
#include <functional>

#include "common/element_runs.h"
#include "common/model_layout.h"
#include "torch/types.h"
#include "worker/stages/placement.h"

namespace torchps {

// The elements of a flat layout that one device has, in vectors of its own there, and copies of
// them from and to the host's vectors, which are of all elements.
//
//   the host's values    | trained ... [mine] ... | averaged ... [mine] ... |
//   values()             | mine, trained | mine, averaged |
//   gradients()          | mine, trained |
//
// All copies are blocking ones: they wait for all that the device was given to do before, and have
// ended when they return. All functions but the accessors throw what torch throws.
//
// A value that shares its vectors with its copies. Thread-compatible.
class DevicePart {
 public:
  // Gradients are zero, values are not set.
  explicit DevicePart(const StagePart& place);

  const torch::Tensor& values() const { return values_; }
  const torch::Tensor& gradients() const { return gradients_; }
  // Where a tensor of the part begins in values(), and in gradients() if it is trained.
  int64_t GetBegin(const Segment& segment) const;

  void TakeValues(const torch::Tensor& host_values) const;
  void GiveValues(const torch::Tensor& host_values) const;
  void GiveAveraged(const torch::Tensor& host_values) const;
  void GiveGradients(const torch::Tensor& host_gradients) const;

 private:
  // The runs of the host's value vector that the device has, each with its place in values(). One
  // run where the module is not cut.
  void ForEachRun(
      const std::function<void(int64_t in_host, int64_t in_part, int64_t length)>& use) const;

  ElementRun trained_, averaged_;
  torch::Tensor values_, gradients_;
};

}  // namespace torchps
