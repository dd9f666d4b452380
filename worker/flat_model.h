#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/model_layout.h"
#include "shm/push_segment.h"
#include "torch/nn/module.h"
#include "torch/types.h"
#include "worker/cuda/device_copies.h"
#include "worker/cuda/device_scan.h"
#include "worker/device/block_encoder.h"
#include "worker/device/device_link.h"
#include "worker/device/encoded_outbox.h"
#include "worker/device/finite_check.h"
#include "worker/device/gradient_outbox.h"
#include "worker/loop/model_vectors.h"
#include "worker/module_tensors.h"
#include "worker/stages/device_part.h"
#include "worker/stages/placement.h"

namespace torchps {

// A module whose trained parameters are views of one flat value tensor and whose gradients are
// views of one flat gradient tensor, so that backward() accumulates straight into what is sent and
// a pull lands straight where forward() reads.
//
//   flat values     | trained parameters ............ | averaged buffers |
//   flat gradients  | one element per trained element |
//
// Which tensors these are: worker/module_tensors.h. The order of a tensor's elements is that of a
// contiguous one, whatever the strides were, so that workers, checkpoints and exports agree: a
// channels-last parameter becomes contiguous (docs/gpus.md, "Channels-last").
//
// On a CUDA device the flat tensors live there, and pinned host buffers mirror them; the spans
// below are always host memory. On the CPU they are the flat tensors themselves, and ToDevice()
// and ToHost() have nothing to do. A module in stages on several GPUs has flat tensors on each of
// them, for the stage's elements (worker/stages/placement.h); the host's buffers are of all.
//
// With a link (UseLink) what is pulled goes to the device block by block, beside computing, and
// with an outbox the gradients come from there so. Without, all of it goes by one blocking copy
// each way.
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
  // What of the host's memory servers on this machine can read.
  enum class Shared {
    kNothing,
    // The gradients.
    kGradients,
    // Both buffers of an outbox, where a link may get one; else the gradients.
    kForOutbox,
  };

  // Moves `module` to where it is to lie (a torch::Device, or one for each stage), and its
  // parameters and float buffers into the flat tensors; their values stay what they were.
  // What is to be `shared` is not if the kernel gives no such memory, or it cannot be pinned for a
  // GPU: not_shared() says why.
  // Without `mirrored` a model on GPUs has no host buffers, so no span of host memory and no copy
  // to or from it may be asked for: for a replica that nobody sends. INVALID_ARGUMENT as
  // FindTensors and Placement::Check; or names the device that is not there. INTERNAL: torch cannot
  // move it, e.g. the device's memory is too small.
  static absl::StatusOr<std::unique_ptr<FlatModel>> Create(torch::nn::Module& module,
                                                           Placement placement,
                                                           const ModuleTensors::GetGroup& group_of,
                                                           Shared shared = Shared::kNothing,
                                                           bool mirrored = true);

  const ModelLayout& layout() const { return layout_; }
  // One, or one for each stage of a module that is cut.
  const std::vector<torch::Device>& devices() const { return placement_.devices(); }
  // Where forward() expects its input.
  torch::Device device() const { return devices().front(); }
  // The flat tensors are the host's memory.
  bool on_host() const { return parts_.empty(); }

  // To be called before anything is pulled: copies go through `link` from now on. Borrows the map.
  // INTERNAL: no memory. REQUIRES: has_one_vector(), and not on_host().
  absl::Status UseLink(std::unique_ptr<DeviceLink> link, const BlockMap& block_map);
  // Each block of a gradient is looked at before the outbox brings it, which is made after this.
  void UseFiniteCheck(std::unique_ptr<FiniteCheck> look) { look_ = std::move(look); }
  // What brings gradients() and averaged() to the host in place of ToHost(), which is not to be
  // called then. Made by the first call. Null without a link, if no memory can be pinned for it, or
  // if gradients are shared and were not for an outbox.
  GradientOutbox* MakeOutbox();

  // Gradients come to the host as `encoder` encodes them on the device, from now on: there are no
  // gradients() any more, and ToHost() is not to be called. `looks`: EncodedOutbox::Options.
  // RESOURCE_EXHAUSTED: no memory can be pinned for them, and all is as before. REQUIRES: there is
  // a link and no outbox.
  absl::Status UseEncoder(std::unique_ptr<BlockEncoder> encoder, bool looks);
  // Null without one.
  EncodedOutbox* encoded_outbox() const {
    return copies_ == nullptr ? nullptr : copies_->encoded_outbox();
  }

  // Looks at gradients and clips them where the device has them; null where the host has to.
  void UseScan(std::unique_ptr<DeviceScan> scan) { scan_ = std::move(scan); }
  DeviceScan* scan() const { return scan_.get(); }

  // Null without one.
  DeviceLink* link() const { return copies_ == nullptr ? nullptr : copies_->link(); }

  // The trained parameters, in the order of the layout's segments.
  std::vector<torch::Tensor> parameters() const;

  absl::Span<float> values() override;
  absl::Span<float> gradients() override;
  absl::Span<const float> averaged() override;
  std::function<bool(BlockId)> is_finite() override;
  absl::Span<float> next_values() override;
  absl::Status UseNextValues() override;
  absl::StatusOr<std::function<void(BlockId)>> ExpectBlocks(absl::Span<float> values) override;
  absl::Status ToDevice() override;
  absl::Status ToHost() override;

  // All trained elements of the values that forward() computes with, and of their gradients, where
  // the device has them. REQUIRES: has_one_vector().
  torch::Tensor device_values() const;
  const torch::Tensor& device_gradients() const;
  // All averaged elements, there too. REQUIRES: has_one_vector().
  torch::Tensor device_averaged() const;
  // They lie in one tensor, not on several devices.
  bool has_one_vector() const { return parts_.size() <= 1; }

  // Where gradients() lie, if that can be shared; else null. Valid as long as this object.
  PushSegment* push_segment() { return segment_.get(); }
  // OK: they do, or were not to be shared.
  const absl::Status& not_shared() const { return not_shared_; }
  // Of the first parameter that was channels-last and is no longer; empty: none was.
  const std::string& channels_last_name() const { return channels_last_name_; }

  // Sets all gradients to zero in one pass, and puts back the views of those that
  // `module->zero_grad(/*set_to_none=*/true)` has taken away.
  void ZeroGradients();

  // Before a step: FAILED_PRECONDITION names a value that is no longer the view it was made, as
  // below, or a parameter of `module` that wants a gradient and is not in the layout: it was
  // registered or unfrozen after Create(), and nothing would train it; or such a float buffer,
  // which nothing would average. REQUIRES: the module that this was made of. Costs a walk over the
  // module's parameters and buffers.
  absl::Status CheckModule(const torch::nn::Module& module) const;

  // FAILED_PRECONDITION names a trained parameter that an operation in place has changed since
  // Create() or TakeChanges(): the next pull would undo the change.
  absl::Status CheckUnchanged() const;
  // The worker's own optimizer has changed parameters.
  void TakeChanges();

  // OK while every value and gradient still is the view it was made. FAILED_PRECONDITION names the
  // first that is not: something has replaced it (module->to(...), set_data, an optimizer), and
  // what it computes would not be sent. Costs a pointer comparison per tensor.
  absl::Status CheckViews() const;

 private:
  // One sent tensor. Its segment is layout_.segments() at the same index.
  struct Member {
    torch::Tensor tensor;
    // In each flat vector of values that the device has; a GPU has one.
    std::array<torch::Tensor, 2> value_views;
    torch::Tensor gradient_view;  // undefined where the tensor is averaged
    uint32_t version = 0;         // of `tensor`; each operation in place raises it
  };

  FlatModel(ModuleTensors module, Placement placement,
            absl::StatusOr<std::shared_ptr<PushSegment>> segment, bool mirrored);

  // Zeros. Apart from a device their memory is as long as a buffer of an outbox, which may get it.
  torch::Tensor HostGradients(const torch::TensorOptions& elements) const;
  // Where the tensor of a segment lies: in a part, null being the host's vectors, from this element
  // on.
  std::pair<const DevicePart*, int64_t> Find(const Segment& segment) const;
  // Where each member lies in the values that the device has; on the host in its vector `index`.
  void MakeViews(size_t index);
  // OK while the values are views.
  absl::Status CheckValues() const;

  // The views that the members are.
  size_t view_index() const { return on_host() ? current_ : 0; }

  const ModelLayout layout_;
  const Placement placement_;
  const absl::Status not_shared_;
  std::string channels_last_name_;
  // Kept alive by the gradients' tensor as well.
  const std::shared_ptr<PushSegment> segment_;
  // What each device has that is not the host. None on the host.
  std::vector<DevicePart> parts_;
  // Pinned where a GPU copies to and from them. next_values() makes the second vector of values.
  std::array<torch::Tensor, 2> host_values_;
  torch::Tensor host_gradients_;
  // Null without a link.
  std::unique_ptr<DeviceCopies> copies_;
  // Before there is an outbox, which gets it.
  std::unique_ptr<FiniteCheck> look_;
  std::unique_ptr<DeviceScan> scan_;
  // Which of the host's vectors is values().
  size_t current_ = 0;
  std::vector<Member> members_;
  // The members' tensors, by what stays when their memory is replaced.
  absl::flat_hash_set<const void*> sent_;
};

}  // namespace torchps
