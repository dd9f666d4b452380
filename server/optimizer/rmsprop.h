#pragma once

#include <cstdint>

#include "server/optimizer/optimizer.h"

namespace torchps {

// Implements torch.optim.RMSprop (Tieleman and Hinton 2012; centered: Graves 2013). For gradient g,
// rate r, decay w and value p:
//   g += w p
//   v  = alpha v + (1 - alpha) g^2
//   c  = alpha c + (1 - alpha) g                    (centered only)
//   u  = g / (sqrt(v - c^2) + epsilon)              (c = 0 if not centered)
//   b  = momentum b + u, u = b                      (with momentum only)
//   p -= r u
// v - c^2 is a variance, negative only by rounding. torch returns NaN then; this class uses 0.
// Slots "square_avg" = v; then "grad_avg" = c if centered; then "momentum_buffer" = b with
// momentum.
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

}  // namespace torchps
