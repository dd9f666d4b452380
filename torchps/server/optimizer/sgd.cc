#include "torchps/server/optimizer/sgd.h"

#include <cstddef>

#include "torchps/common/check.h"
#include "torchps/server/optimizer/elementwise.h"

namespace torchps {

namespace {

struct Plain {
  float rate;
  float decay;

  [[gnu::always_inline]] void operator()(float gradient, float& value) const {
    value -= rate * (gradient + decay * value);
  }
};

template <bool kNesterov>
struct Momentum {
  float rate;
  float decay;
  float momentum;
  float gradient_share;  // 1 - dampening, but 1 in the first step

  [[gnu::always_inline]] void operator()(float gradient, float& value, float& buffer) const {
    const float g = gradient + decay * value;
    const float b = momentum * buffer + gradient_share * g;
    buffer = b;
    value -= rate * (kNesterov ? g + momentum * b : b);
  }
};

}  // namespace

void Sgd::Apply(const ApplyParameters& parameters, float* values, absl::Span<float* const> slots,
                const float* gradient, int64_t n) const {
  TPS_DCHECK(slots.size() == static_cast<size_t>(this->slots()), "one array per slot");
  const auto rate = static_cast<float>(parameters.learning_rate);
  const auto decay = static_cast<float>(parameters.weight_decay);
  if (slots.empty()) {
    return ForEachElement(set_, Plain{rate, decay}, n, gradient, values);
  }
  const auto momentum = static_cast<float>(options_.momentum);
  // The buffer is zero before the first step, so a share of 1 copies the gradient.
  const float share = parameters.step == 1 ? 1.0f : static_cast<float>(1.0 - options_.dampening);
  if (options_.nesterov) {
    ForEachElement(set_, Momentum<true>{rate, decay, momentum, share}, n, gradient, values,
                   slots[0]);
  } else {
    ForEachElement(set_, Momentum<false>{rate, decay, momentum, share}, n, gradient, values,
                   slots[0]);
  }
}

namespace {

template <bool kTurnEnds>
struct Delayed {
  float rate;
  float decay;
  float momentum;

  [[gnu::always_inline]] void operator()(float gradient, float& value, float& buffer,
                                         float& gathered) const {
    const float g = gradient + decay * value;
    const float sum = gathered + g;
    if (kTurnEnds) {
      const float b = momentum * buffer + sum;
      buffer = b;
      gathered = 0;
      value -= rate * (g + momentum * b);
    } else {
      gathered = sum;
      value -= rate * g;
    }
  }
};

}  // namespace

void DelayedNesterov::Apply(const ApplyParameters& parameters, float* values,
                            absl::Span<float* const> slots, const float* gradient,
                            int64_t n) const {
  TPS_DCHECK(slots.size() == 2, "one array per slot");
  const auto rate = static_cast<float>(parameters.learning_rate);
  const auto decay = static_cast<float>(parameters.weight_decay);
  const auto momentum = static_cast<float>(options_.momentum);
  if (parameters.step % options_.workers == 0) {
    ForEachElement(set_, Delayed<true>{rate, decay, momentum}, n, gradient, values, slots[0],
                   slots[1]);
  } else {
    ForEachElement(set_, Delayed<false>{rate, decay, momentum}, n, gradient, values, slots[0],
                   slots[1]);
  }
}

}  // namespace torchps
