#include "server/optimizer/adagrad.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/check.h"
#include "server/optimizer/elementwise.h"

namespace torchps {
namespace {

struct AdagradElement {
  float decay;
  float decayed_rate;
  float epsilon;

  [[gnu::always_inline]] void operator()(float gradient, float& value, float& sum) const {
    const float g = gradient + decay * value;
    const float a = sum + g * g;
    sum = a;
    value -= decayed_rate * (g / (std::sqrt(a) + epsilon));
  }
};

}  // namespace

void Adagrad::InitializeSlots(absl::Span<float* const> slots, int64_t n) const {
  TPS_DCHECK(slots.size() == 1, "one array per slot");
  std::fill_n(slots[0], n, static_cast<float>(options_.initial_accumulator));
}

void Adagrad::Apply(const ApplyParameters& parameters, float* values,
                    absl::Span<float* const> slots, const float* gradient, int64_t n) const {
  TPS_DCHECK(slots.size() == 1, "one array per slot");
  const double earlier_steps = static_cast<double>(parameters.step - 1);
  AdagradElement s;
  s.decay = static_cast<float>(parameters.weight_decay);
  s.decayed_rate =
      static_cast<float>(parameters.learning_rate / (1.0 + earlier_steps * options_.lr_decay));
  s.epsilon = static_cast<float>(options_.epsilon);
  ForEachElement(set_, s, n, gradient, values, slots[0]);
}

}  // namespace torchps
