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
#include "torch/nn/module.h"
#include "torch/types.h"
#include "torchps/common/block_map.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/types.h"
#include "torchps/transport/push_segments.h"
#include "torchps/worker/cuda/device_copies.h"
#include "torchps/worker/cuda/device_scan.h"
#include "torchps/worker/device/device_link.h"
#include "torchps/worker/device/encoded_outbox.h"
#include "torchps/worker/device/gradient_outbox.h"
#include "torchps/worker/loop/model_vectors.h"
#include "torchps/worker/module_tensors.h"
#include "torchps/worker/stages/slot_members.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {

// Views a module's trained parameters in one flat value tensor and the gradients in one flat
// gradient tensor. backward() then accumulates directly into the memory that is sent, and a pull
// writes directly into the memory that forward() reads.
//
//   flat values     | trained parameters ............ | averaged buffers |
//   flat gradients  | one element per trained element |
//
// torchps/worker/module_tensors.h selects the tensors. Elements are in contiguous order regardless
// of strides, so that workers, checkpoints and exports agree. A channels-last parameter therefore
// becomes contiguous (docs/gpus.md, "Channels-last").
//
// On a CUDA device, the flat tensors are on the device, and pinned host buffers mirror them. The
// spans below are always host memory. On the CPU the spans are the flat tensors, and ToDevice() and
// ToHost() do nothing. A module in stages on several GPUs uses flat tensors on each GPU for the
// stage's elements (torchps/worker/stages/stages.h). The host buffers hold the elements of all
// stages.
//
// With a link (UseLink()), pulled blocks are copied to the device one by one while the device
// computes. An outbox (torchps/worker/device/gradient_outbox.h) copies the gradient's blocks to the
// host in the same way. Without a link, values and gradients are each copied as a whole, and the
// host waits.
//
// The second value vector, next_values(), receives a pull while forward and backward use values().
// On the CPU, swapping the two vectors copies no data: each tensor is pointed at the other vector.
//
// Thread-compatible: used by the trainer's thread. Another thread may use the spans while forward,
// backward, ToDevice and ToHost are not running, and next_values() except during UseNextValues().
// Create() borrows the module only for the call. The module's tensors share the flat tensors'
// memory and stay valid after the FlatModel is destroyed.
class FlatModel final : public ModelVectors {
 public:
  // The host memory to share with servers on this machine.
  enum class Shared {
    kNothing,
    // The gradients.
    kGradients,
    // Both outbox buffers if a link may need an outbox, otherwise the gradients.
    kForOutbox,
  };

  // Moves `module` to the placement's devices (a torch::Device, or one for each stage) and moves
  // parameters and float buffers into the flat tensors, keeping their values.
  //
  // If the memory for `shared` cannot be allocated, or pinned for a GPU, no memory is shared, and
  // not_shared() returns the reason. If `mirrored` is false, a model on GPUs lacks host buffers,
  // and host spans and copies must not be used. A replica that exchanges nothing with servers needs
  // no host buffers.
  //
  // INVALID_ARGUMENT as for FindTensors and Placement::Check, or if a device is missing. INTERNAL
  // if torch cannot move the module, for example because the device memory is too small.
  static absl::StatusOr<std::unique_ptr<FlatModel>> Create(torch::nn::Module& module,
                                                           Placement placement,
                                                           const ModuleTensors::GetGroup& group_of,
                                                           Shared shared = Shared::kNothing,
                                                           bool mirrored = true);

  const ModelLayout& layout() const { return layout_; }
  // Returns one device, or one for each stage of a module in stages.
  const std::vector<torch::Device>& devices() const { return placement_.devices(); }
  // Returns the device for the input of forward().
  torch::Device device() const { return devices().front(); }
  // True if the flat tensors are in host memory.
  bool on_host() const { return parts_.empty(); }

  // Makes copies between host and device use `link`. Call it before the first pull. Borrows the
  // map. INTERNAL: out of memory. REQUIRES: has_one_vector() and not on_host().
  absl::Status UseLink(std::unique_ptr<DeviceLink> link, const BlockMap& block_map);
  // Makes the outbox, which must not exist yet, check each block of a gradient before copying it.
  void UseFiniteCheck(std::unique_ptr<FiniteCheck> look) { look_ = std::move(look); }
  // Returns the outbox, which the first call makes. From then on the outbox copies gradients() and
  // averaged() to the host, and ToHost() must not be called. Returns null without a link, if memory
  // cannot be pinned, or if the shared memory was not allocated for an outbox.
  GradientOutbox* MakeOutbox();

  // Makes the device encode gradients with `encoder`, so that only encoded blocks are copied to the
  // host. gradients() and ToHost() must not be used any more. `looks`: see EncodedOutbox::Options.
  // RESOURCE_EXHAUSTED if memory cannot be pinned; the model is then unchanged. REQUIRES: there is
  // a link and no outbox.
  absl::Status UseEncoder(std::unique_ptr<BlockEncoder> encoder, bool looks);
  // Returns null without UseEncoder().
  EncodedOutbox* encoded_outbox() const {
    return copies_ == nullptr ? nullptr : copies_->encoded_outbox();
  }

  // Makes the device check and clip gradients. scan() is null if the host must do it.
  void UseScan(std::unique_ptr<DeviceScan> scan) { scan_ = std::move(scan); }
  DeviceScan* scan() const { return scan_.get(); }

  // Returns null without UseLink().
  DeviceLink* link() const { return copies_ == nullptr ? nullptr : copies_->link(); }

  // Returns the trained parameters in the order of the layout's segments.
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

  // Returns all trained values that forward() uses, and their gradients, on the device. REQUIRES:
  // has_one_vector().
  torch::Tensor device_values() const;
  const torch::Tensor& device_gradients() const;
  // Returns all averaged elements on the device. REQUIRES: has_one_vector().
  torch::Tensor device_averaged() const;
  // True if the values are in one tensor, not on several devices.
  bool has_one_vector() const { return parts_.size() <= 1; }

  // Returns the shared segment that holds gradients(), or null. Valid until this object is
  // destroyed.
  PushSegment* push_segment() { return segment_.get(); }
  // OK if sharing succeeded or was not requested.
  const absl::Status& not_shared() const { return not_shared_; }
  // The name of the first channels-last parameter that became contiguous, or "".
  const std::string& channels_last_name() const { return channels_last_name_; }

  // Sets all gradients to zero in one pass. Restores gradient views that
  // `module->zero_grad(/*set_to_none=*/true)` removed.
  void ZeroGradients();

  // Checks the module before a step. FAILED_PRECONDITION names a value that is no longer a view
  // (see CheckViews()). Also names a parameter that was registered or unfrozen after Create(),
  // because it would not be trained, or a float buffer registered later, because it would not be
  // averaged. REQUIRES: the module passed to Create(). Costs a walk over the module's parameters
  // and buffers.
  absl::Status CheckModule(const torch::nn::Module& module) const;

  // FAILED_PRECONDITION names a trained parameter that an in-place operation changed since Create()
  // or TakeChanges(). The next pull would undo the change.
  absl::Status CheckUnchanged() const;
  // Makes CheckUnchanged() accept the in-place changes so far, which the inner optimizer of local
  // steps made.
  void TakeChanges();

  // FAILED_PRECONDITION names the first value or gradient that is no longer a view because it was
  // replaced (module->to(...), set_data, an optimizer). Such a gradient would not be sent. Costs a
  // pointer comparison per tensor.
  absl::Status CheckViews() const;

 private:
  // A sent tensor. The segment is at the same index in layout_.segments().
  struct Member {
    torch::Tensor tensor;
    // On the host, the view of the segment in each value vector. On a device, only the first is
    // set.
    std::array<torch::Tensor, 2> value_views;
    torch::Tensor gradient_view;  // undefined for an averaged tensor
    uint32_t version = 0;         // torch's count of in-place changes at the last TakeChanges()
  };

  FlatModel(ModuleTensors module, Placement placement,
            absl::StatusOr<std::shared_ptr<PushSegment>> segment, bool mirrored);

  // Returns zeros for host_gradients_. If the model is on a device, the memory is as long as an
  // outbox buffer, so that an outbox can reuse it.
  torch::Tensor HostGradients(const torch::TensorOptions& elements) const;
  // Returns the part that holds a segment's tensor, or null if the host vectors hold it, and the
  // index of the tensor's first element there.
  std::pair<const DevicePart*, int64_t> Find(const Segment& segment) const;
  // Sets the members' views of value vector `index`, which is 0 on a device.
  void MakeViews(size_t index);
  // OK if all values are still views.
  absl::Status CheckValues() const;

  // The index into Member::value_views of the views that forward() uses.
  size_t view_index() const { return on_host() ? current_ : 0; }

  const ModelLayout layout_;
  const Placement placement_;
  const absl::Status not_shared_;
  std::string channels_last_name_;
  // Also owned by host_gradients_, because the module's gradients may outlive this object.
  const std::shared_ptr<PushSegment> segment_;
  // The elements on each device. Empty if the model is on the host.
  std::vector<DevicePart> parts_;
  // The two value vectors; next_values() allocates the second. Pinned if a GPU copies from and to
  // them.
  std::array<torch::Tensor, 2> host_values_;
  torch::Tensor host_gradients_;
  // Null without a link.
  std::unique_ptr<DeviceCopies> copies_;
  // The finite check for the outbox that MakeOutbox() will make.
  std::unique_ptr<FiniteCheck> look_;
  std::unique_ptr<DeviceScan> scan_;
  // The index of values() in host_values_.
  size_t current_ = 0;
  std::vector<Member> members_;
  // Identifies the members' tensors even if their memory is replaced.
  absl::flat_hash_set<const void*> sent_;
};

}  // namespace torchps
