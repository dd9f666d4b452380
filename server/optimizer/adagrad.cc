#include "server/optimizer/adagrad.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/check.h"
#include "server/optimizer/unaligned_float.h"

namespace torchps {
namespace {

struct Scalars {
  float decay;
  float decayed_rate;
  float epsilon;
};

void ApplyAdagrad(Scalars s, float* __restrict values, float* __restrict sum,
                  const UnalignedFloat* __restrict gradient, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] + s.decay * values[i];
    const float a = sum[i] + g * g;
    sum[i] = a;
    values[i] -= s.decayed_rate * (g / (std::sqrt(a) + s.epsilon));
  }
}

}  // namespace

void Adagrad::InitializeSlots(absl::Span<float* const> slots, int64_t n) const {
  TPS_DCHECK(slots.size() == 1, "one array per slot");
  std::fill_n(slots[0], n, static_cast<float>(options_.initial_accumulator));
}

void Adagrad::Apply(const ApplyParameters& parameters, float* values,
                    absl::Span<float* const> slots, const float* gradient, int64_t n) const {
  TPS_DCHECK(slots.size() == 1, "one array per slot");
  const double earlier_steps = static_cast<double>(parameters.step - 1);
  Scalars s;
  s.decay = static_cast<float>(parameters.weight_decay);
  s.decayed_rate =
      static_cast<float>(parameters.learning_rate / (1.0 + earlier_steps * options_.lr_decay));
  s.epsilon = static_cast<float>(options_.epsilon);
  ApplyAdagrad(s, values, slots[0], AtAnyAddress(gradient), n);
}

}  // namespace torchps
