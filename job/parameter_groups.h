#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/model_layout.h"
#include "proto/job.pb.h"

namespace torchps {

// Returns the parameter group for a trained parameter: the index of the first `spec.group` with a
// pattern that matches the full name, or -1. Patterns follow fnmatch(3): '*' also matches dots, and
// a backslash is an ordinary character. The worker stores the group in the layout's segments.
// Averaged segments always belong to group -1, because they are not optimized.
int GetGroup(const OptimizerSpec& spec, absl::string_view name);

// Returns the weight decay for group `group` of a normalised spec; -1 means the defaults.
double GetWeightDecay(const OptimizerSpec& spec, int group);

// Returns OK if the group of each trained segment equals GetGroup's result. Otherwise returns
// INVALID_ARGUMENT, naming the segment, its group and the expected group.
absl::Status CheckGroups(const OptimizerSpec& spec, const ModelLayout& layout);

// Returns OK if each group of `spec` matches at least one trained segment. Otherwise returns
// INVALID_ARGUMENT, naming the pattern and some parameter names.
absl::Status CheckGroupsAreUsed(const OptimizerSpec& spec, const ModelLayout& layout);

}  // namespace torchps
