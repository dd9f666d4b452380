#include "torchps/worker/stages/slot_members.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torch/utils.h"
#include "torchps/common/element_runs.h"

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

namespace {

ReplicaMember Member(const std::string& host, torch::Device device, int stage, int64_t parameters,
                     int64_t elements) {
  ReplicaMember member;
  member.set_host(host);
  member.set_device(device.str());
  member.set_stage(stage);
  member.set_parameters(parameters);
  member.set_model_bytes(static_cast<uint64_t>(elements) * sizeof(float));
  return member;
}

// Returns the number of elements of a stage's values and gradients in memory. On a GPU, each
// element exists twice, because the host keeps buffers for the network.
int64_t StageElements(int64_t trained, int64_t averaged, bool on_host) {
  return (on_host ? 1 : 2) * (2 * trained + averaged);
}

// Returns the number of elements that a replica keeps in memory (torchps/worker/flat_model.h). The
// lead holds a second vector of values as the target of pulls. On a GPU, the host mirrors both
// vectors and the gradients.
int64_t ReplicaElements(const ModelLayout& layout, bool is_lead, bool is_gpu) {
  const int64_t alone = layout.size() + layout.trained_size();
  if (!is_lead) return alone;
  return is_gpu ? alone + 2 * layout.size() + layout.trained_size() : alone + layout.size();
}

}  // namespace

std::vector<ReplicaMember> DeviceMembers(const std::vector<torch::Device>& devices,
                                         const ModelLayout& layout, const std::string& host) {
  std::vector<ReplicaMember> members;
  if (devices.size() == 1) return members;
  for (const torch::Device device : devices) {
    const int64_t elements = ReplicaElements(layout, members.empty(), device.is_cuda());
    members.push_back(Member(host, device, /*stage=*/-1, layout.trained_size(), elements));
  }
  return members;
}

std::vector<ReplicaMember> StageMembers(const Placement& placement, const ModelLayout& layout,
                                        const std::string& host) {
  std::vector<ReplicaMember> members;
  if (!placement.has_stages()) return members;
  for (const StagePart& part : placement.GetParts(layout)) {
    const int64_t trained = part.trained.end - part.trained.begin;
    const int64_t averaged = part.averaged.end - part.averaged.begin;
    members.push_back(Member(host, part.device, static_cast<int>(members.size()), trained,
                             StageElements(trained, averaged, placement.on_host())));
  }
  return members;
}

ReplicaMember ProcessMember(int stage, torch::Device device, const ModelLayout& layout,
                            const std::string& host) {
  ReplicaMember member =
      Member(host, device, stage, layout.trained_size(),
             StageElements(layout.trained_size(), layout.averaged_size(), device.is_cpu()));
  member.set_own_process(true);
  return member;
}

std::string DevicesOfMembers(const std::vector<ReplicaMember>& members) {
  return absl::StrJoin(members, ",", [](std::string* text, const ReplicaMember& member) {
    absl::StrAppend(text, member.device());
  });
}

}  // namespace torchps
