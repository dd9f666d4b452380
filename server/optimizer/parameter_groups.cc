#include "server/optimizer/parameter_groups.h"

namespace torchps {

ParameterGroups::ParameterGroups(const OptimizerSpec& spec) {
  of_.reserve(spec.group_size() + 1);
  of_.push_back({spec.learning_rate(), spec.weight_decay()});
  for (const ParameterGroupSpec& group : spec.group()) {
    // Both stay unset in a normalised job where the group does not speak of
    // them.
    const double factor = group.has_learning_rate_factor() ? group.learning_rate_factor() : 1.0;
    of_.push_back({spec.learning_rate() * factor,
                   group.has_weight_decay() ? group.weight_decay() : spec.weight_decay()});
  }
}

}  // namespace torchps
