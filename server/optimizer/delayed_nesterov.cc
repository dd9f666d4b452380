#include "server/optimizer/delayed_nesterov.h"

#include "common/check.h"
#include "server/optimizer/elementwise.h"

namespace torchps {
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
