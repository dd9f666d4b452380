#include "server/optimizer/parameter_groups.h"

#include "job/job_warnings.h"
#include "job/parameter_groups.h"

namespace torchps {

ParameterGroups::ParameterGroups(const OptimizerSpec& spec) {
  // If momentum is at the workers, they have already added the decay to the gradient.
  const bool decays = !MomentumInWorkers(spec);
  of_.reserve(spec.group_size() + 1);
  for (int group = -1; group < spec.group_size(); ++group) {
    // Unset in a normalized job if the group does not set it.
    const double factor = group >= 0 && spec.group(group).has_learning_rate_factor()
                              ? spec.group(group).learning_rate_factor()
                              : 1.0;
    of_.push_back({spec.learning_rate() * factor, decays ? GetWeightDecay(spec, group) : 0.0});
  }
}

}  // namespace torchps
