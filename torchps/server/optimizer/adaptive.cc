#include "torchps/server/optimizer/adaptive.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "torchps/common/check.h"
#include "torchps/server/optimizer/elementwise.h"

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

namespace {

struct Scalars {
  float rate;
  float decay;
  float alpha;
  float one_minus_alpha;
  float epsilon;
  float momentum;
};

// The arguments after the value are square_avg, grad_avg if centered, and momentum_buffer with
// momentum.
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

namespace {

struct AdamElement {
  float kept;  // 1 - rate * decay if decoupled, else 1
  float l2;    // decay if not decoupled, else 0
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float corrected_rate;         // rate / (1 - beta1^step)
  float inverse_root_of_bias2;  // 1 / sqrt(1 - beta2^step)
  float epsilon;

  [[gnu::always_inline]] void operator()(float gradient, float& value, float& exp_avg,
                                         float& exp_avg_sq) const {
    const float g = gradient + l2 * value;
    const float m = beta1 * exp_avg + one_minus_beta1 * g;
    const float v = beta2 * exp_avg_sq + one_minus_beta2 * g * g;
    exp_avg = m;
    exp_avg_sq = v;
    const float denominator = std::sqrt(v) * inverse_root_of_bias2 + epsilon;
    value = kept * value - corrected_rate * (m / denominator);
  }
};

}  // namespace

void Adam::Apply(const ApplyParameters& parameters, float* values, absl::Span<float* const> slots,
                 const float* gradient, int64_t n) const {
  TPS_DCHECK(slots.size() == 2, "one array per slot");
  const bool decoupled = options_.decay == Decay::kDecoupled;
  const double step = static_cast<double>(parameters.step);
  const double bias1 = 1.0 - std::pow(options_.beta1, step);
  const double bias2 = 1.0 - std::pow(options_.beta2, step);
  AdamElement s;
  s.kept = static_cast<float>(decoupled ? 1.0 - parameters.learning_rate * parameters.weight_decay
                                        : 1.0);
  s.l2 = static_cast<float>(decoupled ? 0.0 : parameters.weight_decay);
  s.beta1 = static_cast<float>(options_.beta1);
  s.one_minus_beta1 = static_cast<float>(1.0 - options_.beta1);
  s.beta2 = static_cast<float>(options_.beta2);
  s.one_minus_beta2 = static_cast<float>(1.0 - options_.beta2);
  s.corrected_rate = static_cast<float>(parameters.learning_rate / bias1);
  s.inverse_root_of_bias2 = static_cast<float>(1.0 / std::sqrt(bias2));
  s.epsilon = static_cast<float>(options_.epsilon);
  ForEachElement(set_, s, n, gradient, values, slots[0], slots[1]);
}

}  // namespace torchps
