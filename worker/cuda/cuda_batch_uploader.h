#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/core/Event.h"
#include "c10/core/Stream.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "worker/feed/batch_loader.h"

namespace torchps {

// Copies batches to a GPU from pinned memory, on a stream of torch's pool. Like CudaLink, this
// class does not need the CUDA toolkit.
//
// The uploader relies on torch's caching allocators instead of a ring of buffers. The pinned
// allocator records each copy on the copy stream and reuses memory only after the copy ends. The
// device allocator returns memory to the copy stream after the computing stream, registered in
// Arrive(), passes the last use. So batches may differ in size and type, and a program may keep a
// batch indefinitely.
//
// Thread-safe as BatchUploader specifies.
class CudaBatchUploader final : public BatchUploader {
 public:
  // Limits how many passes a thread may queue on the device beyond the pass being computed.
  static constexpr size_t kPassesAhead = 2;

  // Copies a tensor to pinned memory, or to the device on the current stream.
  using Pin = std::function<at::Tensor(const at::Tensor& tensor)>;
  using Copy = std::function<at::Tensor(const at::Tensor& tensor, c10::Device device)>;

  struct Options {
    // If the index is missing, the calling thread's current device.
    c10::Device device = c10::Device(c10::DeviceType::CUDA, 0);
    // For tests.
    Pin pin = &PinByTorch;
    Copy copy = &CopyByTorch;
  };

  // Throws c10::Error if the device cannot create streams.
  explicit CudaBatchUploader(Options options);

  void EnterThread() override;
  // Leaves tensors that cannot be pinned unchanged. Copying such a tensor blocks the host.
  Batch Stage(Batch batch) override;
  Rising Begin(Batch batch) override;
  Batch Arrive(Rising rising) override;
  void EndPass() override;

 private:
  static at::Tensor PinByTorch(const at::Tensor& tensor);
  static at::Tensor CopyByTorch(const at::Tensor& tensor, c10::Device device);

  const Pin pin_;
  const Copy copy_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Device device_;
  const c10::Stream up_;
  // Torch 1.13 can wait for a stream but not for an event.
  const c10::Stream wait_;
  // Ends of the last passes, oldest first.
  std::deque<c10::Event> passes_;
};

}  // namespace torchps
