#include "tests/simulation/sgd_model.h"

#include <algorithm>

namespace torchps::simulation {

void SgdModel::Take(double gradient, double rate, int64_t lag, State* element) const {
  const double momentum = spec_.momentum();
  if (spec_.momentum_at() == SgdSpec::ORDERED) {
    TakeOrdered(gradient, rate, lag, element);
  } else if (spec_.momentum_at() == SgdSpec::DELAYED) {
    TakeDelayed(gradient, rate, element);
  } else if (momentum == 0) {
    element->value -= rate * gradient;
  } else {
    element->momentum = momentum * element->momentum + gradient;
    element->value -=
        rate * (spec_.nesterov() ? gradient + momentum * element->momentum : element->momentum);
  }
  ++element->taken;
}

void SgdModel::TakeOrdered(double gradient, double rate, int64_t lag, State* element) const {
  const int64_t taken = element->taken;
  const int64_t turn = Turn(taken);
  // The first one begins no turn: there is nothing to decay.
  if (taken > 0 && turn > Turn(taken - 1)) {
    element->momentum *= spec_.momentum();
    element->value -= rate * element->momentum;
  }
  // What it has missed of the turns that were over before it came.
  double weight = 1;
  double reach = 1;
  for (int64_t missed = Turn(std::max<int64_t>(taken - lag, 0)); missed < turn; ++missed) {
    weight *= spec_.momentum();
    reach += weight;
  }
  element->momentum += weight * gradient;
  element->value -= rate * reach * gradient;
}

void SgdModel::TakeDelayed(double gradient, double rate, State* element) const {
  element->value -= rate * gradient;
  element->gathered += gradient;
  if ((element->taken + 1) % workers_ != 0) return;
  element->momentum = spec_.momentum() * element->momentum + element->gathered;
  element->gathered = 0;
  element->value -= rate * spec_.momentum() * element->momentum;
}

}  // namespace torchps::simulation
