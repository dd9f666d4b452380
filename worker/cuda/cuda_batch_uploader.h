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
#include "worker/feed/batch_uploader.h"

namespace torchps {

// Batches to a GPU, from pinned memory, on a stream of torch's pool. As CudaLink it needs no
// toolkit.
//
// It has no ring of buffers of its own, since torch's two allocators are one: they keep what they
// have allocated, give it to the next batch of that size, and know when. That of pinned memory
// marks each copy on the stream that makes it, and gives no memory away that a copy still reads.
// That of the device gives memory back to the stream it was taken on, here the one of the copies,
// once the stream that computes, which it is told of in Arrive(), is behind the memory's last use.
// So batches may differ in size and type, and a program may keep one for as long as it likes.
//
// Thread-safe as BatchUploader says.
class CudaBatchUploader final : public BatchUploader {
 public:
  // So many passes a thread may have given the device, beside the one that that computes.
  static constexpr size_t kPassesAhead = 2;

  // A copy in pinned memory, and one on the device, which the current stream makes.
  using Pin = std::function<at::Tensor(const at::Tensor& tensor)>;
  using Copy = std::function<at::Tensor(const at::Tensor& tensor, c10::Device device)>;

  struct Options {
    // Without an index: the calling thread's current one.
    c10::Device device = c10::Device(c10::DeviceType::CUDA, 0);
    // For tests.
    Pin pin = &PinByTorch;
    Copy copy = &CopyByTorch;
  };

  // Throws what torch throws: the device gives no streams.
  explicit CudaBatchUploader(Options options);

  void EnterThread() override;
  // What cannot be pinned stays as it is: its copy waits, on the host, as any copy of such memory.
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
  // Torch 1.13 cannot wait for an event, but for a stream.
  const c10::Stream wait_;
  // The ends of the last passes, oldest first.
  std::deque<c10::Event> passes_;
};

}  // namespace torchps
