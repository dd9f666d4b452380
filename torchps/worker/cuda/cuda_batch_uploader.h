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
#include "torchps/worker/feed/batch_loader.h"

namespace torchps {

// Copies batches to a GPU from pinned memory, on a stream of torch's pool. Like CudaLink, this
// class does not need the CUDA toolkit.
//
// The uploader relies on torch's caching allocators instead of a ring of buffers. The pinned
// allocator records each copy on the copy stream and reuses memory only after the copy ends. The
// device allocator reuses a batch's memory for later copies only after the computing stream has
// passed the last use. Arrive() registers this stream with the allocator. So batches may differ in
// size and type, and a program may keep a batch indefinitely.
//
// Thread-safe as BatchUploader specifies.
class CudaBatchUploader final : public BatchUploader {
 public:
  // Limits how many passes a thread may queue on the device beyond the pass being computed.
  static constexpr size_t kPassesAhead = 2;

  // Pin copies a tensor to pinned memory. Copy queues a copy to the device on the current stream.
  using Pin = std::function<at::Tensor(const at::Tensor& tensor)>;
  using Copy = std::function<at::Tensor(const at::Tensor& tensor, c10::Device device)>;

  struct Options {
    // If the index is missing, the constructor uses the calling thread's current device.
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
  // EndPass() makes this stream wait for an event, and then waits for the stream, because torch
  // 1.13 cannot wait for an event.
  const c10::Stream wait_;
  // Events at the ends of the last passes, oldest first.
  std::deque<c10::Event> passes_;
};

}  // namespace torchps
