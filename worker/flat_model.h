#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model_layout.h"
#include "shm/push_segment.h"
#include "torch/nn/module.h"
#include "torch/types.h"
#include "worker/loop/model_vectors.h"

namespace torchps {

// A module whose trained parameters are views of one flat value tensor and whose gradients are
// views of one flat gradient tensor, so that backward() accumulates straight into what is sent and
// a pull lands straight where forward() reads.
//
//   flat values     | trained parameters ............ | averaged buffers |
//   flat gradients  | one element per trained element |
//
// What goes where:
//   - a parameter with requires_grad is trained; one registered under several names (tied) has one
//     segment, under its first name;
//   - a float buffer (batch-norm running statistics) is averaged over workers;
//   - a frozen parameter (requires_grad = false) and an integer or boolean buffer
//     (num_batches_tracked) is not sent at all: each worker keeps its own, the same in all of them
//     if they start from the same seed and nothing writes to it.
// Everything that is sent must be dense float32.
//
// On a CUDA device the flat tensors live there, and pinned host buffers mirror them; the spans
// below are always host memory. On the CPU they are the flat tensors themselves, and ToDevice()
// and ToHost() have nothing to do.
//
// There may be a second value vector, next_values(), for a pull to land in while forward and
// backward compute on the first. Taking it over copies nothing on the CPU: each tensor is pointed
// at its place in the other vector.
//
// Thread-compatible: used by the trainer's thread; the spans may be read and written by another
// thread while no forward, backward, ToDevice or ToHost runs, next_values() at any time but during
// UseNextValues(). Borrows the module for Create() only;
// its tensors share the flat tensors' memory and stay valid after the FlatModel is gone.
class FlatModel final : public ModelVectors {
 public:
  // Index of the optimizer's parameter group for a parameter's name, -1 for none.
  using GroupOf = std::function<int(const std::string& name)>;

  // How `module` would be laid out; touches nothing.
  // INVALID_ARGUMENT names the tensor: not float32, not dense, two tensors that share memory
  // without being one, a float buffer that is not finite, nothing to train.
  static absl::StatusOr<ModelLayout> LayoutOf(const torch::nn::Module& module,
                                              const GroupOf& group_of);

  // Moves `module` to `device` and its parameters and float buffers into the flat tensors; their
  // values stay what they were.
  // With `may_share` and on the CPU the gradients lie in memory that servers on this machine can
  // read, if the kernel gives such memory.
  // INVALID_ARGUMENT as LayoutOf; or names the device that is not there. INTERNAL: torch cannot
  // move it, e.g. the device's memory is too small.
  static absl::StatusOr<std::unique_ptr<FlatModel>> Create(torch::nn::Module& module,
                                                           torch::Device device,
                                                           const GroupOf& group_of,
                                                           bool may_share = false);

  const ModelLayout& layout() const { return layout_; }
  torch::Device device() const { return device_; }
  // The trained parameters, in the order of the layout's segments.
  std::vector<torch::Tensor> parameters() const;

  absl::Span<float> values() override;
  absl::Span<float> gradients() override;
  absl::Span<const float> averaged() override;
  absl::Span<float> next_values() override;
  absl::Status UseNextValues() override;
  absl::Status ToDevice() override;
  absl::Status ToHost() override;

  // All trained elements of the values that forward() computes with, and of their gradients, where
  // the device has them.
  torch::Tensor device_values() const;
  const torch::Tensor& device_gradients() const { return gradients_; }

  // Where gradients() lie, if that can be shared; else null. Valid as long as this object.
  PushSegment* push_segment() { return segment_.get(); }

  // Sets all gradients to zero in one pass, and puts back the views of those that
  // `module->zero_grad(/*set_to_none=*/true)` has taken away.
  void ZeroGradients();

  // Before a step: FAILED_PRECONDITION names a value that is no longer the view it was made, as
  // below, or a parameter of `module` that wants a gradient and is not in the layout: it was
  // registered or unfrozen after Create(), and nothing would train it. REQUIRES: the module that
  // this was made of. Costs a walk over the module's parameters.
  absl::Status CheckModule(const torch::nn::Module& module) const;

  // OK while every value and gradient still is the view it was made. FAILED_PRECONDITION names the
  // first that is not: something has replaced it (module->to(...), set_data, an optimizer), and
  // what it computes would not be sent. Costs a pointer comparison per tensor.
  absl::Status CheckViews() const;

 private:
  // One sent tensor. Its segment is layout_.segments() at the same index.
  struct Member {
    torch::Tensor tensor;
    // In each flat vector of values that the device has.
    std::array<torch::Tensor, 2> value_views;
    torch::Tensor gradient_view;  // undefined where the tensor is averaged
  };

  FlatModel(ModelLayout layout, std::vector<torch::Tensor> tensors, torch::Device device,
            std::shared_ptr<PushSegment> segment);

  // Where each member lies in the flat vector `values` of the device.
  void MakeViews(const torch::Tensor& values, size_t index);
  // OK while the values are views.
  absl::Status CheckValues() const;

  // The vector on the device that forward() computes with.
  size_t device_index() const { return device_.is_cpu() ? current_ : 0; }

  const ModelLayout layout_;
  const torch::Device device_;
  // Kept alive by the gradients' tensor as well.
  const std::shared_ptr<PushSegment> segment_;
  // The vectors that the members are views of. Of the values the second one is undefined on the
  // CPU until next_values() makes it, elsewhere always.
  std::array<torch::Tensor, 2> values_;
  torch::Tensor gradients_;
  // Pinned mirrors; on the CPU the flat tensors themselves.
  std::array<torch::Tensor, 2> host_values_;
  torch::Tensor host_gradients_;
  // Which of the host's vectors is values().
  size_t current_ = 0;
  std::vector<Member> members_;
  // The trained members' tensors, by what stays when their memory is replaced.
  absl::flat_hash_set<const void*> trained_;
};

}  // namespace torchps
