#include "worker/replicas/local_group.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "worker/replicas/host_group.h"
#include "worker/replicas/nccl_group.h"

namespace torchps {
namespace {

bool AreDifferentGpus(const DeviceList& devices) {
  std::vector<std::string> names;
  for (const torch::Device& device : devices) {
    if (!device.is_cuda()) return false;
    names.push_back(device.str());
  }
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) == names.end();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGroup>> MakeLocalGroup(const DeviceList& devices) {
  if (!AreDifferentGpus(devices)) return std::make_unique<HostGroup>();
  const absl::StatusOr<Nccl> nccl = FindNccl();
  if (!nccl.ok()) return std::make_unique<HostGroup>();
  absl::StatusOr<std::unique_ptr<NcclGroup>> group = NcclGroup::Create(*nccl, devices);
  if (!group.ok()) return group.status();
  return *std::move(group);
}

}  // namespace torchps
