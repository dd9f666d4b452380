#pragma once

#include <array>
#include <functional>
#include <memory>

#include "ATen/core/Tensor.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "torchps/common/block_map.h"
#include "torchps/worker/device/device_link.h"
#include "torchps/worker/device/encoded_outbox.h"
#include "torchps/worker/device/gradient_outbox.h"
#include "torchps/worker/device/value_uploader.h"
#include "torchps/worker/kernels/kernel_launcher.h"

namespace torchps {

// Returns the driver's handle of the calling thread's computing stream. Thread-safe.
using CurrentStream = std::function<KernelLauncher::Stream()>;

// Returns null if this torch version does not expose stream handles.
CurrentStream GetCurrentStream(c10::Device device);

// Owns the link and the memory that a model on a device needs for copying while it computes
// (torchps/worker/device).
//
// Thread-compatible; ValueUploader and the outbox classes say which functions other threads may
// call. Keeps the model's tensors, borrows the map.
class DeviceCopies {
 public:
  struct Options {
    std::unique_ptr<DeviceLink> link;
    const BlockMap* block_map = nullptr;
    // On the device: all values, trained values first, and the gradients.
    at::Tensor values;
    at::Tensor gradients;
    // If true, host memory is pinned.
    bool pinned = false;
  };

  // Throws c10::Error if the device lacks memory for a second vector of values.
  explicit DeviceCopies(Options options);

  DeviceLink* link() { return link_.get(); }
  ValueUploader& inbox() { return *inbox_; }
  // Null until MakeOutbox().
  GradientOutbox* outbox() { return outbox_.get(); }
  // Makes the outbox; returns null if its two buffers cannot be pinned. `look` checks gradients on
  // the device; may be null. REQUIRES, here and in the two functions below: no outbox exists yet.
  GradientOutbox* MakeOutbox(std::unique_ptr<FiniteCheck> look);
  // Same as above, with the caller's buffers. REQUIRES: each buffer holds all elements of the
  // layout, and is pinned if the device is a GPU. Borrows the buffers.
  GradientOutbox* MakeOutbox(std::unique_ptr<FiniteCheck> look,
                             std::array<absl::Span<float>, 2> buffers);

  // Makes an outbox for gradients that `encoder` encodes, instead of the outbox above. Returns null
  // if host memory cannot be pinned. See EncodedOutbox::Options for `looks`.
  EncodedOutbox* MakeEncodedOutbox(std::unique_ptr<BlockEncoder> encoder, bool looks);
  // Null until MakeEncodedOutbox().
  EncodedOutbox* encoded_outbox() { return encoded_outbox_.get(); }

 private:
  const at::Tensor values_, gradients_, staging_;
  const BlockMap* const block_map_;
  const bool pinned_;
  std::array<at::Tensor, 2> buffers_;
  std::unique_ptr<FiniteCheck> look_;
  std::array<at::Tensor, 2> host_verdicts_;
  std::unique_ptr<BlockEncoder> encoder_;
  at::Tensor host_records_, host_averaged_;
  // Destroyed before the memory that it copies.
  const std::unique_ptr<DeviceLink> link_;
  std::unique_ptr<ValueUploader> inbox_;
  std::unique_ptr<GradientOutbox> outbox_;
  std::unique_ptr<EncodedOutbox> encoded_outbox_;
};

}  // namespace torchps
