#pragma once

#include <array>
#include <memory>

#include "ATen/core/Tensor.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "worker/device/block_encoder.h"
#include "worker/device/device_link.h"
#include "worker/device/encoded_outbox.h"
#include "worker/device/finite_check.h"
#include "worker/device/gradient_outbox.h"
#include "worker/device/value_uploader.h"

namespace torchps {

// What a model on a device needs for copies that go on beside computing (worker/device): the link,
// and memory on both sides.
//
// Thread-compatible; inbox and outbox as they say. Keeps the model's tensors, borrows the map.
class DeviceCopies {
 public:
  struct Options {
    std::unique_ptr<DeviceLink> link;
    const BlockMap* block_map = nullptr;
    // The device's: all values, the trained ones first, and the gradients.
    at::Tensor values;
    at::Tensor gradients;
    // The host's memory is to be pinned.
    bool pinned = false;
  };

  // Throws what torch throws: the device has no memory for a second vector of values.
  explicit DeviceCopies(Options options);

  DeviceLink* link() { return link_.get(); }
  ValueUploader& inbox() { return *inbox_; }
  // Null: not made.
  GradientOutbox* outbox() { return outbox_.get(); }
  // Null: no memory can be pinned for its two buffers. `look`: what looks at gradients there; null:
  // nothing. REQUIRES: there is no outbox, here and below.
  GradientOutbox* MakeOutbox(std::unique_ptr<FiniteCheck> look);
  // The same with buffers of the caller's, pinned where a GPU needs it, each as long as the layout.
  // Borrowed.
  GradientOutbox* MakeOutbox(std::unique_ptr<FiniteCheck> look,
                             std::array<absl::Span<float>, 2> buffers);

  // In place of those: gradients come down as `encoder` encodes them. Null: no memory can be pinned
  // for them. `looks`: EncodedOutbox::Options.
  EncodedOutbox* MakeEncodedOutbox(std::unique_ptr<BlockEncoder> encoder, bool looks);
  // Null: not made.
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
  // It ends before the memory that it copies.
  const std::unique_ptr<DeviceLink> link_;
  std::unique_ptr<ValueUploader> inbox_;
  std::unique_ptr<GradientOutbox> outbox_;
  std::unique_ptr<EncodedOutbox> encoded_outbox_;
};

}  // namespace torchps
