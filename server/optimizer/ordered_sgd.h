#pragma once

#include <cstdint>

#include "server/optimizer/optimizer.h"

namespace torchps {

// Ordered momentum (OrMo, Shi et al. 2024): stochastic gradient descent whose momentum decays once
// in P gradients, as with P workers that step together, and that takes each gradient in as what it
// would be by now, had it come in its turn. With gradient g, rate r, decay w, momentum u, value p:
//   t  = gradients taken before this one     b = t - lag, what this one was computed on
//   turn(x) = ceil(x / P)                    d = turn(t) - turn(b)
//   g += w p
//   if turn(t) > turn(t - 1):   m = u m,  p -= r m
//   p -= r (1 + u + ... + u^d) g
//   m += u^d g
// With P = 1 and no lag it is torch.optim.SGD with momentum. Slot "momentum_buffer" = m.
//
// t counts the element's own gradients: one that has missed some sees every turn all the same. Its
// lag is that of its block, t at most.
class OrderedSgd final : public Optimizer {
 public:
  struct Options {
    double momentum = 0;  // above 0
    // P: those of the job, however many of them live, so that a replay of its log sees the same.
    int workers = 1;
  };

  // REQUIRES: this machine has `set`; workers >= 1.
  OrderedSgd(Options options, InstructionSet set) : options_(options), set_(set) {}

  absl::string_view name() const override { return "sgd"; }
  int slots() const override { return 1; }
  absl::string_view slot_name(int) const override { return "momentum_buffer"; }
  void Apply(const ApplyParameters& parameters, float* values, absl::Span<float* const> slots,
             const float* gradient, int64_t n) const override;

 private:
  // REQUIRES: taken >= -1.
  int64_t Turn(int64_t taken) const;

  const Options options_;
  const InstructionSet set_;
};

}  // namespace torchps
