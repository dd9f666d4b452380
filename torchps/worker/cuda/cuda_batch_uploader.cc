#include "torchps/worker/cuda/cuda_batch_uploader.h"

#include <utility>

#include "ATen/ops/empty_like.h"
#include "c10/core/StreamGuard.h"
#include "c10/util/Exception.h"

namespace torchps {
namespace {

// Returns true if Begin() can copy the tensor. Arrive() moves other tensors on the computing
// thread, for example those of a dataset that is already on the device.
bool CanRise(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided &&
         !tensor.requires_grad();
}

template <typename Use>
void ForEachTensor(Batch* batch, Use use) {
  use(batch->input);
  use(batch->target);
  for (at::Tensor& tensor : batch->more_inputs) use(tensor);
  for (at::Tensor& tensor : batch->more_targets) use(tensor);
}

}  // namespace

// Also copies tensors that are already pinned: torch cannot track when the user frees that memory.
at::Tensor CudaBatchUploader::PinByTorch(const at::Tensor& tensor) {
  try {
    return at::empty_like(tensor, tensor.options().pinned_memory(true)).copy_(tensor);
  } catch (const c10::Error&) {
    return tensor;
  }
}

at::Tensor CudaBatchUploader::CopyByTorch(const at::Tensor& tensor, c10::Device device) {
  return tensor.to(device, /*non_blocking=*/true);
}

CudaBatchUploader::CudaBatchUploader(Options options)
    : pin_(std::move(options.pin)),
      copy_(std::move(options.copy)),
      guard_(options.device.type()),
      device_(options.device.has_index() ? options.device : guard_.getDevice()),
      up_(guard_.getStreamFromGlobalPool(device_)),
      wait_(guard_.getStreamFromGlobalPool(device_)) {}

// A new thread starts on the first GPU. Torch would restore that device after each use of a stream,
// which creates a context there (torchps/worker/cuda/cuda_link.cc).
void CudaBatchUploader::EnterThread() { guard_.setDevice(device_); }

Batch CudaBatchUploader::Stage(Batch batch) {
  ForEachTensor(&batch, [this](at::Tensor& tensor) {
    if (CanRise(tensor)) tensor = pin_(tensor);
  });
  return batch;
}

BatchUploader::Rising CudaBatchUploader::Begin(Batch batch) {
  const c10::StreamGuard on_stream(up_);
  ForEachTensor(&batch, [this](at::Tensor& tensor) {
    if (CanRise(tensor)) tensor = copy_(tensor, device_);
  });
  auto end = std::make_shared<c10::Event>(device_.type());
  end->record(up_);
  return {std::move(batch), std::move(end)};
}

Batch CudaBatchUploader::Arrive(Rising rising) {
  const c10::Stream compute = guard_.getStream(device_);
  if (rising.end != nullptr) static_cast<const c10::Event*>(rising.end.get())->block(compute);
  ForEachTensor(&rising.batch, [&](at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (tensor.device() == device_ && tensor.layout() == at::kStrided) {
      guard_.recordDataPtrOnStream(tensor.storage().data_ptr(), compute);
    } else {
      tensor = tensor.to(device_);
    }
  });
  return std::move(rising.batch);
}

void CudaBatchUploader::EndPass() {
  passes_.emplace_back(device_.type());
  passes_.back().record(guard_.getStream(device_));
  if (passes_.size() <= kPassesAhead) return;
  passes_.front().block(wait_);
  guard_.synchronizeStream(wait_);
  passes_.pop_front();
}

}  // namespace torchps
