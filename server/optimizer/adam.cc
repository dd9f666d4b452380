#include "server/optimizer/adam.h"

#include <cmath>
#include <cstddef>

#include "common/check.h"
#include "server/optimizer/unaligned_float.h"

namespace torchps {
namespace {

struct Scalars {
  float kept;  // 1 - rate * decay where decoupled, else 1
  float l2;    // decay where not decoupled, else 0
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float corrected_rate;         // rate / (1 - beta1^step)
  float inverse_root_of_bias2;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
};

void ApplyAdam(Scalars s, float* __restrict values, float* __restrict exp_avg,
               float* __restrict exp_avg_sq, const UnalignedFloat* __restrict gradient, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] + s.l2 * values[i];
    const float m = s.beta1 * exp_avg[i] + s.one_minus_beta1 * g;
    const float v = s.beta2 * exp_avg_sq[i] + s.one_minus_beta2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const float denominator = std::sqrt(v) * s.inverse_root_of_bias2 + s.epsilon;
    values[i] = s.kept * values[i] - s.corrected_rate * (m / denominator);
  }
}

}  // namespace

void Adam::Apply(const ApplyParameters& parameters, float* values, absl::Span<float* const> slots,
                 const float* gradient, int64_t n) const {
  TPS_DCHECK(slots.size() == 2, "one array per slot");
  const bool decoupled = options_.decay == Decay::kDecoupled;
  const double step = static_cast<double>(parameters.step);
  const double bias1 = 1.0 - std::pow(options_.beta1, step);
  const double bias2 = 1.0 - std::pow(options_.beta2, step);
  Scalars s;
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
  ApplyAdam(s, values, slots[0], slots[1], AtAnyAddress(gradient), n);
}

}  // namespace torchps
