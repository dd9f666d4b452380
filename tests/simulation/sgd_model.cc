#include "tests/simulation/sgd_model.h"

namespace torchps::simulation {

void SgdModel::Take(double gradient, double rate, State* element) const {
  const double momentum = spec_.momentum();
  element->momentum = momentum * element->momentum + gradient;
  element->value -=
      rate * (spec_.nesterov() ? gradient + momentum * element->momentum : element->momentum);
}

}  // namespace torchps::simulation
