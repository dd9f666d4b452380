#include "bench/highway_kernels.h"

#include <cmath>

#include "common/check.h"
#include "common/cpu/flush_denormals.h"
#include "server/optimizer/elementwise.h"

// Highway includes this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/highway_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace torchps {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Calls step(d, gradient, values, slots...) for all elements, as many at a time as `d` has lanes.
template <typename Step, typename... Slots>
void ForEachVector(Step step, int64_t n, const float* HWY_RESTRICT gradient,
                   float* HWY_RESTRICT values, Slots* HWY_RESTRICT... slots) {
  const hn::CappedTag<float, Strip::kElements> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole_strips = n - n % Strip::kElements;
  for (int64_t i = 0; i < whole_strips; i += Strip::kElements) {
    Strip::PrefetchAhead(gradient + i);
    Strip::PrefetchAhead(values + i);
    (Strip::PrefetchAhead(slots + i), ...);
    for (int64_t j = i; j < i + Strip::kElements; j += lanes) {
      step(d, gradient + j, values + j, slots + j...);
    }
  }
  const hn::CappedTag<float, 1> one;
  for (int64_t i = whole_strips; i < n; ++i) step(one, gradient + i, values + i, slots + i...);
}

struct PlainStep {
  float rate;
  float decay;

  template <typename D>
  HWY_INLINE void operator()(D d, const float* gradient, float* values) const {
    const auto value = hn::LoadU(d, values);
    const auto g = hn::Add(hn::LoadU(d, gradient), hn::Mul(hn::Set(d, decay), value));
    hn::StoreU(hn::Sub(value, hn::Mul(hn::Set(d, rate), g)), d, values);
  }
};

struct MomentumStep {
  float rate;
  float decay;
  float momentum;
  float gradient_share;

  template <typename D>
  HWY_INLINE void operator()(D d, const float* gradient, float* values, float* buffer) const {
    const auto value = hn::LoadU(d, values);
    const auto g = hn::Add(hn::LoadU(d, gradient), hn::Mul(hn::Set(d, decay), value));
    const auto b = hn::Add(hn::Mul(hn::Set(d, momentum), hn::LoadU(d, buffer)),
                           hn::Mul(hn::Set(d, gradient_share), g));
    hn::StoreU(b, d, buffer);
    hn::StoreU(hn::Sub(value, hn::Mul(hn::Set(d, rate), b)), d, values);
  }
};

struct AdamStep {
  float kept;
  float l2;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float corrected_rate;
  float inverse_root_of_bias2;
  float epsilon;

  template <typename D>
  HWY_INLINE void operator()(D d, const float* gradient, float* values, float* exp_avg,
                             float* exp_avg_sq) const {
    const auto value = hn::LoadU(d, values);
    const auto g = hn::Add(hn::LoadU(d, gradient), hn::Mul(hn::Set(d, l2), value));
    const auto m = hn::Add(hn::Mul(hn::Set(d, beta1), hn::LoadU(d, exp_avg)),
                           hn::Mul(hn::Set(d, one_minus_beta1), g));
    const auto v = hn::Add(hn::Mul(hn::Set(d, beta2), hn::LoadU(d, exp_avg_sq)),
                           hn::Mul(hn::Mul(hn::Set(d, one_minus_beta2), g), g));
    hn::StoreU(m, d, exp_avg);
    hn::StoreU(v, d, exp_avg_sq);
    const auto denominator =
        hn::Add(hn::Mul(hn::Sqrt(v), hn::Set(d, inverse_root_of_bias2)), hn::Set(d, epsilon));
    const auto change = hn::Mul(hn::Set(d, corrected_rate), hn::Div(m, denominator));
    hn::StoreU(hn::Sub(hn::Mul(hn::Set(d, kept), value), change), d, values);
  }
};

void ApplySgd(const SgdSpec& spec, const ApplyParameters& parameters, float* values,
              absl::Span<float* const> slots, const float* gradient, int64_t n) {
  const auto rate = static_cast<float>(parameters.learning_rate);
  const auto decay = static_cast<float>(parameters.weight_decay);
  if (slots.empty()) return ForEachVector(PlainStep{rate, decay}, n, gradient, values);
  const auto momentum = static_cast<float>(spec.momentum());
  const float share = parameters.step == 1 ? 1.0f : static_cast<float>(1.0 - spec.dampening());
  ForEachVector(MomentumStep{rate, decay, momentum, share}, n, gradient, values, slots[0]);
}

void ApplyAdamW(const AdamWSpec& spec, const ApplyParameters& parameters, float* values,
                absl::Span<float* const> slots, const float* gradient, int64_t n) {
  const double step = static_cast<double>(parameters.step);
  const double bias1 = 1.0 - std::pow(spec.beta1(), step);
  const double bias2 = 1.0 - std::pow(spec.beta2(), step);
  AdamStep s;
  s.kept = static_cast<float>(1.0 - parameters.learning_rate * parameters.weight_decay);
  s.l2 = 0.0f;
  s.beta1 = static_cast<float>(spec.beta1());
  s.one_minus_beta1 = static_cast<float>(1.0 - spec.beta1());
  s.beta2 = static_cast<float>(spec.beta2());
  s.one_minus_beta2 = static_cast<float>(1.0 - spec.beta2());
  s.corrected_rate = static_cast<float>(parameters.learning_rate / bias1);
  s.inverse_root_of_bias2 = static_cast<float>(1.0 / std::sqrt(bias2));
  s.epsilon = static_cast<float>(spec.epsilon());
  ForEachVector(s, n, gradient, values, slots[0], slots[1]);
}

const char* Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace torchps
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torchps {
namespace {

HWY_EXPORT(ApplySgd);
HWY_EXPORT(ApplyAdamW);
HWY_EXPORT(Target);

}  // namespace

void ApplyWithHighway(const OptimizerSpec& spec, const ApplyParameters& parameters, float* values,
                      absl::Span<float* const> slots, const float* gradient, int64_t n) {
  const FlushDenormals flush;
  if (spec.has_sgd()) {
    TPS_CHECK(!spec.sgd().nesterov(), "Nesterov's momentum is not written with Highway");
    return HWY_DYNAMIC_DISPATCH(ApplySgd)(spec.sgd(), parameters, values, slots, gradient, n);
  }
  TPS_CHECK(spec.has_adamw(), "only sgd and adamw are written with Highway");
  HWY_DYNAMIC_DISPATCH(ApplyAdamW)(spec.adamw(), parameters, values, slots, gradient, n);
}

const char* HighwayTarget() { return HWY_DYNAMIC_DISPATCH(Target)(); }

}  // namespace torchps
#endif
