#pragma once

#include <cstdint>

#include "server/optimizer/optimizer.h"

namespace torchps {

// Implements torch.optim.Adagrad (Duchi et al. 2011). For gradient g, rate r, decay w, value p and
// step t:
//   g += w p
//   a += g^2
//   p -= r / (1 + (t - 1) lr_decay) * g / (sqrt(a) + epsilon)
// Slot "sum" = a, initialized to initial_accumulator.
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

}  // namespace torchps
