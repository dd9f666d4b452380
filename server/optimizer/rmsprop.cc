#include "server/optimizer/rmsprop.h"

#include <cmath>
#include <cstddef>

#include "common/check.h"
#include "server/optimizer/unaligned_float.h"

namespace torchps {
namespace {

struct Scalars {
  float rate;
  float decay;
  float alpha;
  float one_minus_alpha;
  float epsilon;
  float momentum;
};

// `grad_avg` is read and written only where centered, `buffer` only with
// momentum; else null.
template <bool kCentered, bool kMomentum>
void ApplyRmsProp(Scalars s, float* __restrict values, float* __restrict square_avg,
                  float* __restrict grad_avg, float* __restrict buffer,
                  const UnalignedFloat* __restrict gradient, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] + s.decay * values[i];
    const float v = s.alpha * square_avg[i] + s.one_minus_alpha * g * g;
    square_avg[i] = v;
    float variance = v;
    if constexpr (kCentered) {
      const float c = s.alpha * grad_avg[i] + s.one_minus_alpha * g;
      grad_avg[i] = c;
      variance = v - c * c;
      variance = variance > 0.0f ? variance : 0.0f;
    }
    float update = g / (std::sqrt(variance) + s.epsilon);
    if constexpr (kMomentum) {
      update += s.momentum * buffer[i];
      buffer[i] = update;
    }
    values[i] -= s.rate * update;
  }
}

}  // namespace

absl::string_view RmsProp::slot_name(int i) const {
  if (i == 0) return "square_avg";
  return i == 1 && options_.centered ? "grad_avg" : "momentum_buffer";
}

void RmsProp::Apply(const ApplyParameters& parameters, float* values,
                    absl::Span<float* const> slots, const float* gradient, int64_t n) const {
  TPS_DCHECK(slots.size() == static_cast<size_t>(this->slots()), "one array per slot");
  Scalars s;
  s.rate = static_cast<float>(parameters.learning_rate);
  s.decay = static_cast<float>(parameters.weight_decay);
  s.alpha = static_cast<float>(options_.alpha);
  s.one_minus_alpha = static_cast<float>(1.0 - options_.alpha);
  s.epsilon = static_cast<float>(options_.epsilon);
  s.momentum = static_cast<float>(options_.momentum);
  const UnalignedFloat* const source = AtAnyAddress(gradient);
  if (options_.centered && has_momentum()) {
    ApplyRmsProp<true, true>(s, values, slots[0], slots[1], slots[2], source, n);
  } else if (options_.centered) {
    ApplyRmsProp<true, false>(s, values, slots[0], slots[1], nullptr, source, n);
  } else if (has_momentum()) {
    ApplyRmsProp<false, true>(s, values, slots[0], nullptr, slots[1], source, n);
  } else {
    ApplyRmsProp<false, false>(s, values, slots[0], nullptr, nullptr, source, n);
  }
}

}  // namespace torchps
