#include "job/parameter_groups.h"

#include <fnmatch.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace torchps {

int GroupOf(const OptimizerSpec& spec, absl::string_view name) {
  const std::string whole(name);
  for (int i = 0; i < spec.group_size(); ++i) {
    if (fnmatch(spec.group(i).pattern().c_str(), whole.c_str(), FNM_NOESCAPE) == 0) return i;
  }
  return -1;
}

absl::Status CheckGroups(const OptimizerSpec& spec, const ModelLayout& layout) {
  for (const Segment& segment : layout.segments()) {
    if (segment.averaged) continue;
    const int expected = GroupOf(spec, segment.name);
    if (segment.group != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment '", segment.name, "' is in parameter group ", segment.group,
                       "; by the patterns of optimizer.group it belongs to ", expected));
    }
  }
  return absl::OkStatus();
}

}  // namespace torchps
