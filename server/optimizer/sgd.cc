#include "server/optimizer/sgd.h"

#include <cstddef>

#include "common/check.h"
#include "server/optimizer/unaligned_float.h"

namespace torchps {
namespace {

struct Scalars {
  float rate;
  float decay;
  float momentum;
  float gradient_share;  // 1 - dampening, but 1 in the first step
};

void ApplyPlain(Scalars s, float* __restrict values, const UnalignedFloat* __restrict gradient,
                int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    values[i] -= s.rate * (gradient[i] + s.decay * values[i]);
  }
}

template <bool kNesterov>
void ApplyMomentum(Scalars s, float* __restrict values, float* __restrict buffer,
                   const UnalignedFloat* __restrict gradient, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] + s.decay * values[i];
    const float b = s.momentum * buffer[i] + s.gradient_share * g;
    buffer[i] = b;
    values[i] -= s.rate * (kNesterov ? g + s.momentum * b : b);
  }
}

}  // namespace

void Sgd::Apply(const ApplyParameters& parameters, float* values, absl::Span<float* const> slots,
                const float* gradient, int64_t n) const {
  TPS_DCHECK(slots.size() == static_cast<size_t>(this->slots()), "one array per slot");
  Scalars s;
  s.rate = static_cast<float>(parameters.learning_rate);
  s.decay = static_cast<float>(parameters.weight_decay);
  s.momentum = static_cast<float>(options_.momentum);
  // The buffer is zero before the first step, so the share alone makes it the
  // gradient then.
  s.gradient_share = parameters.step == 1 ? 1.0f : static_cast<float>(1.0 - options_.dampening);
  const UnalignedFloat* const source = AtAnyAddress(gradient);
  if (slots.empty()) {
    ApplyPlain(s, values, source, n);
  } else if (options_.nesterov) {
    ApplyMomentum<true>(s, values, slots[0], source, n);
  } else {
    ApplyMomentum<false>(s, values, slots[0], source, n);
  }
}

}  // namespace torchps
