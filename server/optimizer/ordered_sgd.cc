#include "server/optimizer/ordered_sgd.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "server/optimizer/elementwise.h"

namespace torchps {
namespace {

struct Ordered {
  float rate;
  float decay;
  float kept;     // of the buffer: the momentum where a turn begins, else all of it
  float moves;    // 1 where a turn begins, and the buffer moves the value; else 0
  float reaches;  // of the gradient in the value
  float enters;   // and in the buffer

  [[gnu::always_inline]] void operator()(float gradient, float& value, float& buffer) const {
    const float g = gradient + decay * value;
    const float b = kept * buffer;
    value -= rate * (moves * b + reaches * g);
    buffer = b + enters * g;
  }
};

}  // namespace

int64_t OrderedSgd::Turn(int64_t taken) const {
  return (taken + options_.workers - 1) / options_.workers;
}

void OrderedSgd::Apply(const ApplyParameters& parameters, float* values,
                       absl::Span<float* const> slots, const float* gradient, int64_t n) const {
  TPS_DCHECK(slots.size() == 1, "one array per slot");
  const int64_t taken = parameters.step - 1;
  const int64_t base = taken - std::min(parameters.lag, taken);
  const bool begins = Turn(taken) > Turn(taken - 1);
  const auto late = static_cast<double>(Turn(taken) - Turn(base));
  const double momentum = options_.momentum;
  Ordered element;
  element.rate = static_cast<float>(parameters.learning_rate);
  element.decay = static_cast<float>(parameters.weight_decay);
  element.kept = begins ? static_cast<float>(momentum) : 1.0f;
  element.moves = begins ? 1.0f : 0.0f;
  element.enters = static_cast<float>(std::pow(momentum, late));
  element.reaches = static_cast<float>(
      momentum == 1 ? late + 1 : (1 - std::pow(momentum, late + 1)) / (1 - momentum));
  ForEachElement(set_, element, n, gradient, values, slots[0]);
}

}  // namespace torchps
