#include "worker/cuda/device_copies.h"

#include <utility>

#include "ATen/ops/empty_like.h"
#include "ATen/ops/zeros.h"
#include "absl/types/span.h"

namespace torchps {
namespace {

absl::Span<float> SpanOf(const at::Tensor& tensor) {
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
  ValueInbox::Options inbox;
  inbox.link = link_.get();
  inbox.block_map = block_map_;
  inbox.staging = SpanOf(staging_);
  inbox.values = SpanOf(values_);
  inbox.least_copy_bytes = link_->least_copy_bytes();
  inbox_ = std::make_unique<ValueInbox>(inbox);
}

GradientOutbox* DeviceCopies::MakeOutbox() {
  if (outbox_ != nullptr) return outbox_.get();
  const auto memory = at::TensorOptions().dtype(at::kFloat).pinned_memory(pinned_);
  try {
    for (at::Tensor& buffer : buffers_) buffer = at::zeros({values_.numel()}, memory);
  } catch (const c10::Error&) {
    buffers_ = {};
    return nullptr;
  }
  return MakeOutbox({SpanOf(buffers_[0]), SpanOf(buffers_[1])});
}

GradientOutbox* DeviceCopies::MakeOutbox(std::array<absl::Span<float>, 2> buffers) {
  if (outbox_ != nullptr) return outbox_.get();
  GradientOutbox::Options outbox;
  outbox.link = link_.get();
  outbox.block_map = block_map_;
  outbox.gradients = SpanOf(gradients_);
  outbox.averaged = SpanOf(values_).subspan(gradients_.numel());
  outbox.buffers = buffers;
  outbox.least_copy_bytes = link_->least_copy_bytes();
  outbox_ = std::make_unique<GradientOutbox>(outbox);
  return outbox_.get();
}

}  // namespace torchps
