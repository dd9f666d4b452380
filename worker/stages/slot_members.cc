#include "worker/stages/slot_members.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/element_runs.h"

namespace torchps {
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

// Elements of values and gradients of a stage. On a GPU they exist twice, because the host keeps
// network buffers.
int64_t StageElements(int64_t trained, int64_t averaged, bool on_host) {
  return (on_host ? 1 : 2) * (2 * trained + averaged);
}

// Elements as in worker/flat_model.h. The lead holds a second vector of values as the target of
// pulls. On a GPU, the host mirrors both vectors and the gradients.
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
