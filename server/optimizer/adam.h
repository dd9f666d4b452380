#pragma once

#include <cstdint>

#include "server/optimizer/optimizer.h"

namespace torchps {

// Implements torch.optim.Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019). They
// differ only in the use of the decay w. For gradient g, rate r, value p and step t:
//   g += w p (Adam)   or   p *= 1 - r w (AdamW)
//   m  = beta1 m + (1 - beta1) g
//   v  = beta2 v + (1 - beta2) g^2
//   p -= r / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
// Slots "exp_avg" = m and "exp_avg_sq" = v.
class Adam final : public Optimizer {
 public:
  enum class Decay {
    kL2,         // Adam: part of the gradient
    kDecoupled,  // AdamW: shrinks the value, without effect on m and v
  };
  struct Options {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    Decay decay = Decay::kL2;
  };

  // REQUIRES: this machine supports `set`.
  Adam(Options options, InstructionSet set) : options_(options), set_(set) {}

  absl::string_view name() const override {
    return options_.decay == Decay::kDecoupled ? "adamw" : "adam";
  }
  int slots() const override { return 2; }
  absl::string_view slot_name(int i) const override { return i == 0 ? "exp_avg" : "exp_avg_sq"; }
  void Apply(const ApplyParameters& parameters, float* values, absl::Span<float* const> slots,
             const float* gradient, int64_t n) const override;

 private:
  const Options options_;
  const InstructionSet set_;
};

}  // namespace torchps
