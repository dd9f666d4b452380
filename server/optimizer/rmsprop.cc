#include "server/optimizer/rmsprop.h"

#include <cmath>
#include <cstddef>

#include "common/check.h"
#include "server/optimizer/elementwise.h"

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

// The slots are square_avg, then grad_avg if centered, then the buffer with momentum.
template <bool kCentered, bool kMomentum>
struct RmsPropElement {
  Scalars s;

  template <typename... More>
  [[gnu::always_inline]] void operator()(float gradient, float& value, float& square_avg,
                                         More&... more) const {
    const float g = gradient + s.decay * value;
    const float v = s.alpha * square_avg + s.one_minus_alpha * g * g;
    square_avg = v;
    float variance = v;
    if constexpr (kCentered) {
      float& grad_avg = First(more...);
      const float c = s.alpha * grad_avg + s.one_minus_alpha * g;
      grad_avg = c;
      variance = v - c * c;
      variance = variance > 0.0f ? variance : 0.0f;
    }
    float update = g / (std::sqrt(variance) + s.epsilon);
    if constexpr (kMomentum) {
      float& buffer = Last(more...);
      update += s.momentum * buffer;
      buffer = update;
    }
    value -= s.rate * update;
  }

 private:
  [[gnu::always_inline]] static float& First(float& first) { return first; }
  [[gnu::always_inline]] static float& First(float& first, float&) { return first; }
  [[gnu::always_inline]] static float& Last(float& last) { return last; }
  [[gnu::always_inline]] static float& Last(float&, float& last) { return last; }
};

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
  if (options_.centered && has_momentum()) {
    ForEachElement(set_, RmsPropElement<true, true>{s}, n, gradient, values, slots[0], slots[1],
                   slots[2]);
  } else if (options_.centered) {
    ForEachElement(set_, RmsPropElement<true, false>{s}, n, gradient, values, slots[0], slots[1]);
  } else if (has_momentum()) {
    ForEachElement(set_, RmsPropElement<false, true>{s}, n, gradient, values, slots[0], slots[1]);
  } else {
    ForEachElement(set_, RmsPropElement<false, false>{s}, n, gradient, values, slots[0]);
  }
}

}  // namespace torchps
