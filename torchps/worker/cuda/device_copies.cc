#include "torchps/worker/cuda/device_copies.h"

#include <cstddef>
#include <type_traits>
#include <utility>

#include "ATen/ops/empty_like.h"
#include "ATen/ops/zeros.h"
#include "absl/types/span.h"
#include "c10/core/Stream.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "torchps/common/check.h"

namespace torchps {
namespace {

// Newer torch versions expose the driver's stream handle. Older versions expose it only in the CUDA
// headers, so FindHandle() returns null.
template <typename Stream>
auto FindHandle(int) -> decltype(&Stream::native_handle) {
  return &Stream::native_handle;
}
template <typename Stream>
std::nullptr_t FindHandle(...) {
  return nullptr;
}

template <typename Handle>
CurrentStream WithHandle(c10::Device device, Handle handle) {
  if constexpr (std::is_null_pointer_v<Handle>) {
    return nullptr;
  } else {
    return [device, handle] {
      const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
      return (stream.*handle)();
    };
  }
}

}  // namespace

CurrentStream GetCurrentStream(c10::Device device) {
  return WithHandle(device, FindHandle<c10::Stream>(0));
}

namespace {

absl::Span<float> GetSpan(const at::Tensor& tensor) {
  return absl::MakeSpan(tensor.data_ptr<float>(), tensor.numel());
}

}  // namespace

DeviceCopies::DeviceCopies(Options options)
    : values_(std::move(options.values)),
      gradients_(std::move(options.gradients)),
      staging_(at::empty_like(values_)),
      block_map_(options.block_map),
      pinned_(options.pinned),
      link_(std::move(options.link)) {
  ValueUploader::Options inbox;
  inbox.link = link_.get();
  inbox.block_map = block_map_;
  inbox.staging = GetSpan(staging_);
  inbox.values = GetSpan(values_);
  inbox.least_copy_bytes = link_->least_copy_bytes();
  inbox_ = std::make_unique<ValueUploader>(inbox);
}

GradientOutbox* DeviceCopies::MakeOutbox(std::unique_ptr<FiniteCheck> look) {
  const auto memory = at::TensorOptions().dtype(at::kFloat).pinned_memory(pinned_);
  try {
    for (at::Tensor& buffer : buffers_) buffer = at::zeros({values_.numel()}, memory);
  } catch (const c10::Error&) {
    buffers_ = {};
    return nullptr;
  }
  return MakeOutbox(std::move(look), {GetSpan(buffers_[0]), GetSpan(buffers_[1])});
}

GradientOutbox* DeviceCopies::MakeOutbox(std::unique_ptr<FiniteCheck> look,
                                         std::array<absl::Span<float>, 2> buffers) {
  TPS_CHECK(outbox_ == nullptr && encoded_outbox_ == nullptr, "gradients have a way down already");
  GradientOutbox::Options outbox;
  if (look != nullptr) {
    const auto memory = at::TensorOptions().dtype(at::kFloat).pinned_memory(pinned_);
    const auto size = static_cast<int64_t>(look->verdicts().size());
    try {
      for (at::Tensor& verdicts : host_verdicts_) verdicts = at::zeros({size}, memory);
    } catch (const c10::Error&) {
      return nullptr;
    }
    look_ = std::move(look);
    outbox.look = look_.get();
    outbox.host_verdicts = {GetSpan(host_verdicts_[0]), GetSpan(host_verdicts_[1])};
  }
  outbox.link = link_.get();
  outbox.block_map = block_map_;
  outbox.gradients = GetSpan(gradients_);
  outbox.averaged = GetSpan(values_).subspan(gradients_.numel());
  outbox.buffers = buffers;
  outbox.least_copy_bytes = link_->least_copy_bytes();
  outbox_ = std::make_unique<GradientOutbox>(outbox);
  return outbox_.get();
}

EncodedOutbox* DeviceCopies::MakeEncodedOutbox(std::unique_ptr<BlockEncoder> encoder, bool looks) {
  TPS_CHECK(outbox_ == nullptr && encoded_outbox_ == nullptr, "gradients have a way down already");
  const int64_t averaged = values_.numel() - gradients_.numel();
  const auto memory = at::TensorOptions().dtype(at::kFloat).pinned_memory(pinned_);
  try {
    host_records_ = at::zeros({encoder->records().size()}, memory);
    host_averaged_ = at::zeros({averaged}, memory);
  } catch (const c10::Error&) {
    return nullptr;
  }
  encoder_ = std::move(encoder);
  EncodedOutbox::Options outbox;
  outbox.link = link_.get();
  outbox.block_map = block_map_;
  outbox.encoder = encoder_.get();
  outbox.averaged = GetSpan(values_).subspan(gradients_.numel());
  outbox.host_records = GetSpan(host_records_);
  outbox.host_averaged = GetSpan(host_averaged_);
  outbox.looks = looks;
  outbox.least_copy_bytes = link_->least_copy_bytes();
  encoded_outbox_ = std::make_unique<EncodedOutbox>(outbox);
  return encoded_outbox_.get();
}

}  // namespace torchps
