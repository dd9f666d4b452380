#include "job/parameter_groups.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace torchps {

int GetGroup(const OptimizerSpec& spec, absl::string_view name) {
  const std::string whole(name);
  for (int i = 0; i < spec.group_size(); ++i) {
    if (fnmatch(spec.group(i).pattern().c_str(), whole.c_str(), FNM_NOESCAPE) == 0) return i;
  }
  return -1;
}

double GetWeightDecay(const OptimizerSpec& spec, int group) {
  if (group < 0 || !spec.group(group).has_weight_decay()) return spec.weight_decay();
  return spec.group(group).weight_decay();
}

absl::Status CheckGroups(const OptimizerSpec& spec, const ModelLayout& layout) {
  for (const Segment& segment : layout.segments()) {
    if (segment.averaged) continue;
    const int expected = GetGroup(spec, segment.name);
    if (segment.group != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment '", segment.name, "' is in parameter group ", segment.group,
                       "; by the patterns of optimizer.group it belongs to ", expected));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGroupsAreUsed(const OptimizerSpec& spec, const ModelLayout& layout) {
  std::set<int> used;
  std::vector<std::string> names;
  for (const Segment& segment : layout.segments()) {
    if (segment.averaged) continue;
    used.insert(GetGroup(spec, segment.name));
    names.push_back(segment.name);
  }
  for (int i = 0; i < spec.group_size(); ++i) {
    if (used.count(i) > 0) continue;
    constexpr size_t kShown = 8;
    const std::string more = names.size() > kShown ? ", ..." : "";
    names.resize(std::min(names.size(), kShown));
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer.group.", i, ".pattern '", spec.group(i).pattern(),
        "' matches no trained parameter outside the earlier groups; trained parameters: ",
        absl::StrJoin(names, ", "), more));
  }
  return absl::OkStatus();
}

}  // namespace torchps
