#pragma once

#include <cstdint>

#include "server/optimizer/optimizer.h"

namespace torchps {

// Delayed Nesterov momentum (Liu et al. 2024, with c = 0): each gradient moves the value when it
// comes, and the momentum once in P of them, by their sum, as with P workers that step together.
// With gradient g, rate r, decay w, momentum u, value p:
//   t  = gradients taken before this one
//   g += w p
//   p -= r g,  s += g
//   if P divides t + 1:   m = u m + s,  p -= r u m,  s = 0
// The paper divides g by P, here and in s. Nothing is divided here: with local steps a gradient
// comes as its part of a step of all workers (server/store/async_push.h), so that s is the mean of
// a turn. With P = 1 it is torch.optim.SGD with nesterov. Slots "momentum_buffer" = m and
// "gathered" = s.
//
// t counts the element's own gradients: one that has missed some waits for P of its own.
class DelayedNesterov final : public Optimizer {
 public:
  struct Options {
    double momentum = 0;  // above 0
    // P: those of the job, however many of them live, so that a replay of its log sees the same.
    int workers = 1;
  };

  // REQUIRES: this machine has `set`; workers >= 1.
  DelayedNesterov(Options options, InstructionSet set) : options_(options), set_(set) {}

  absl::string_view name() const override { return "sgd"; }
  int slots() const override { return 2; }
  absl::string_view slot_name(int i) const override {
    return i == 0 ? "momentum_buffer" : "gathered";
  }
  void Apply(const ApplyParameters& parameters, float* values, absl::Span<float* const> slots,
             const float* gradient, int64_t n) const override;

 private:
  const Options options_;
  const InstructionSet set_;
};

}  // namespace torchps
