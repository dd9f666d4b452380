#pragma once

#include <vector>

#include "proto/job.pb.h"

namespace torchps {

// What a server does with one parameter group, by what the job sets for it. The learning rate is
// the base rate times the group's factor; schedule and lag contract come on top of it step by step.
struct GroupHyperparameters {
  double learning_rate = 0;
  double weight_decay = 0;
};

// The hyperparameters of every group of a normalised job. Which group a
// parameter is in stands in its Segment (job/parameter_groups.h). Immutable,
// so thread-safe; copyable.
class ParameterGroups {
 public:
  explicit ParameterGroups(const OptimizerSpec& spec);

  // Groups that the job names; the defaults (group -1) are not counted.
  int size() const { return static_cast<int>(of_.size()) - 1; }

  // REQUIRES: -1 <= group < size().
  const GroupHyperparameters& Of(int group) const { return of_[group + 1]; }

 private:
  std::vector<GroupHyperparameters> of_;  // [0] is group -1
};

}  // namespace torchps
