#pragma once

#include <vector>

#include "proto/job.pb.h"

namespace torchps {

// Hyperparameters of one parameter group. The learning rate is the base rate times the group's
// factor; schedule and lag contract change it further in each step.
struct GroupHyperparameters {
  double learning_rate = 0;
  double weight_decay = 0;
};

// Hyperparameters of each group of a normalized job. The Segment of a parameter names the group
// (job/parameter_groups.h). Immutable, so thread-safe; copyable.
class ParameterGroups {
 public:
  explicit ParameterGroups(const OptimizerSpec& spec);

  // Number of groups in the job, without the defaults (group -1).
  int size() const { return static_cast<int>(of_.size()) - 1; }

  // REQUIRES: -1 <= group < size().
  const GroupHyperparameters& Of(int group) const { return of_[group + 1]; }

 private:
  std::vector<GroupHyperparameters> of_;  // [0] is group -1
};

}  // namespace torchps
