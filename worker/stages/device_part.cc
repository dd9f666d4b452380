#include "worker/stages/device_part.h"

#include "torch/utils.h"

namespace torchps {
namespace {

int64_t Length(const ElementRun& run) { return run.end - run.begin; }

}  // namespace

DevicePart::DevicePart(const StagePart& place)
    : trained_(place.trained), averaged_(place.averaged) {
  const auto there = torch::TensorOptions().dtype(torch::kFloat32).device(place.device);
  values_ = torch::empty({Length(trained_) + Length(averaged_)}, there);
  gradients_ = torch::zeros({Length(trained_)}, there);
}

int64_t DevicePart::GetBegin(const Segment& segment) const {
  return segment.averaged ? Length(trained_) + segment.offset - averaged_.begin
                          : segment.offset - trained_.begin;
}

void DevicePart::TakeValues(const torch::Tensor& host_values) const {
  const torch::NoGradGuard no_grad;
  ForEachRun([&](int64_t in_host, int64_t in_part, int64_t length) {
    values_.narrow(0, in_part, length).copy_(host_values.narrow(0, in_host, length));
  });
}

void DevicePart::GiveValues(const torch::Tensor& host_values) const {
  const torch::NoGradGuard no_grad;
  ForEachRun([&](int64_t in_host, int64_t in_part, int64_t length) {
    host_values.narrow(0, in_host, length).copy_(values_.narrow(0, in_part, length));
  });
}

void DevicePart::GiveAveraged(const torch::Tensor& host_values) const {
  const torch::NoGradGuard no_grad;
  host_values.narrow(0, averaged_.begin, Length(averaged_))
      .copy_(values_.narrow(0, Length(trained_), Length(averaged_)));
}

void DevicePart::GiveGradients(const torch::Tensor& host_gradients) const {
  const torch::NoGradGuard no_grad;
  host_gradients.narrow(0, trained_.begin, Length(trained_)).copy_(gradients_);
}

void DevicePart::ForEachRun(
    const std::function<void(int64_t in_host, int64_t in_part, int64_t length)>& use) const {
  const int64_t trained = Length(trained_);
  const int64_t averaged = Length(averaged_);
  if (averaged == 0 || trained_.end == averaged_.begin) {
    return use(trained_.begin, 0, trained + averaged);
  }
  if (trained > 0) use(trained_.begin, 0, trained);
  use(averaged_.begin, trained, averaged);
}

}  // namespace torchps
