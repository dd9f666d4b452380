#pragma once

#include <cstdint>

#include "torchps/server/optimizer/optimizer.h"

namespace torchps {

// Implements torch.optim.Adagrad (Duchi et al. 2011). For gradient g, rate r, decay w, value p and
// step t:
//   g += w p
//   a += g^2
//   p -= r / (1 + (t - 1) lr_decay) * g / (sqrt(a) + epsilon)
// Keeps one array between steps (Optimizer::slots): "sum" = a, which starts at initial_accumulator.
class Adagrad final : public Optimizer {
 public:
  struct Options {
    double lr_decay = 0;
    double epsilon = 1e-10;
    double initial_accumulator = 0;
  };

  // REQUIRES: this machine supports `set`.
  Adagrad(Options options, InstructionSet set) : options_(options), set_(set) {}

  absl::string_view name() const override { return "adagrad"; }
  int slots() const override { return 1; }
  absl::string_view slot_name(int) const override { return "sum"; }
  void InitializeSlots(absl::Span<float* const> slots, int64_t n) const override;
  void Apply(const ApplyParameters& parameters, float* values, absl::Span<float* const> slots,
             const float* gradient, int64_t n) const override;

 private:
  const Options options_;
  const InstructionSet set_;
};

// Implements torch.optim.RMSprop (Tieleman and Hinton 2012; centered: Graves 2013). For gradient g,
// rate r, decay w and value p:
//   g += w p
//   v  = alpha v + (1 - alpha) g^2
//   c  = alpha c + (1 - alpha) g                    (centered only)
//   u  = g / (sqrt(v - c^2) + epsilon)              (c = 0 if not centered)
//   b  = momentum b + u, u = b                      (with momentum only)
//   p -= r u
// Rounding can make the variance v - c^2 negative. torch then returns NaN; this class uses 0.
// Arrays between steps, in this order: "square_avg" = v; "grad_avg" = c, if centered;
// "momentum_buffer" = b, with momentum.
class RmsProp final : public Optimizer {
 public:
  struct Options {
    double alpha = 0.99;
    double epsilon = 1e-8;
    double momentum = 0;
    bool centered = false;
  };

  // REQUIRES: this machine supports `set`.
  RmsProp(Options options, InstructionSet set) : options_(options), set_(set) {}

  absl::string_view name() const override { return "rmsprop"; }
  int slots() const override { return 1 + (options_.centered ? 1 : 0) + (has_momentum() ? 1 : 0); }
  absl::string_view slot_name(int i) const override;
  void Apply(const ApplyParameters& parameters, float* values, absl::Span<float* const> slots,
             const float* gradient, int64_t n) const override;

 private:
  bool has_momentum() const { return options_.momentum != 0; }

  const Options options_;
  const InstructionSet set_;
};

// Implements torch.optim.Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019). They
// differ only in the use of the decay w. For gradient g, rate r, value p and step t:
//   g += w p (Adam)   or   p *= 1 - r w (AdamW)
//   m  = beta1 m + (1 - beta1) g
//   v  = beta2 v + (1 - beta2) g^2
//   p -= r / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
// Arrays between steps: "exp_avg" = m and "exp_avg_sq" = v.
class Adam final : public Optimizer {
 public:
  enum class Decay {
    kL2,         // Adam: adds the decay to the gradient
    kDecoupled,  // AdamW: shrinks the value; m and v do not see the decay
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
