#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/model_layout.h"
#include "proto/job.pb.h"

namespace torchps {

// The parameter group of a trained parameter: index of the first `spec.group` whose pattern matches
// the full name, -1 where none does. Patterns are those of fnmatch(3): '*' crosses dots, a
// backslash is itself. The worker fills the layout's segments with it. Averaged segments have no
// optimizer and hence no group: -1.
int GetGroup(const OptimizerSpec& spec, absl::string_view name);

// What the job sets for group `group` of a normalised spec, -1 for the defaults.
double GetWeightDecay(const OptimizerSpec& spec, int group);

// Whether every trained segment of `layout` has the group that GetGroup gives
// it. Otherwise INVALID_ARGUMENT that names the segment, the group it has and
// the one it should have.
absl::Status CheckGroups(const OptimizerSpec& spec, const ModelLayout& layout);

// Whether every group of `spec` is that of at least one trained segment. Otherwise INVALID_ARGUMENT
// names the pattern, and names that it might have been meant for.
absl::Status CheckGroupsAreUsed(const OptimizerSpec& spec, const ModelLayout& layout);

}  // namespace torchps
