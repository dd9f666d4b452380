#include "worker/stages/stage_members.h"

#include <cstdint>
#include <utility>

#include "common/element_runs.h"

namespace torchps {

std::vector<ReplicaMember> StageMembers(const Placement& placement, const ModelLayout& layout,
                                        const std::string& host) {
  std::vector<ReplicaMember> members;
  if (!placement.has_stages()) return members;
  for (const StagePart& part : placement.PartsOf(layout)) {
    const int64_t trained = part.trained.end - part.trained.begin;
    const int64_t averaged = part.averaged.end - part.averaged.begin;
    const int64_t values_and_gradients = 2 * trained + averaged;
    const int64_t copies = placement.on_host() ? 1 : 2;
    ReplicaMember member;
    member.set_host(host);
    member.set_device(part.device.str());
    member.set_stage(static_cast<int>(members.size()));
    member.set_parameters(trained);
    member.set_model_bytes(copies * values_and_gradients * static_cast<int64_t>(sizeof(float)));
    members.push_back(std::move(member));
  }
  return members;
}

}  // namespace torchps
