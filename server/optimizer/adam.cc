#include "server/optimizer/adam.h"

#include <cmath>
#include <cstddef>

#include "common/check.h"
#include "server/optimizer/elementwise.h"

namespace torchps {
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
