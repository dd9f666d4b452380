#pragma once

#include <cstdint>

#include "torchps/server/optimizer/optimizer.h"

namespace torchps {

// Implements torch.optim.SGD. For gradient g, rate r, decay w and value p:
//   g += w p
//   b  = g in the first step, momentum b + (1 - dampening) g later   (with momentum only)
//   g  = g + momentum b with Nesterov (Sutskever et al. 2013), else b
//   p -= r g
// Keeps one array between steps (Optimizer::slots), only with momentum: "momentum_buffer" = b.
class Sgd final : public Optimizer {
 public:
  struct Options {
    double momentum = 0;
    double dampening = 0;
    bool nesterov = false;
  };

  // REQUIRES: this machine supports `set`.
  Sgd(Options options, InstructionSet set) : options_(options), set_(set) {}

  absl::string_view name() const override { return "sgd"; }
  int slots() const override { return options_.momentum != 0 ? 1 : 0; }
  absl::string_view slot_name(int) const override { return "momentum_buffer"; }
  void Apply(const ApplyParameters& parameters, float* values, absl::Span<float* const> slots,
             const float* gradient, int64_t n) const override;

 private:
  const Options options_;
  const InstructionSet set_;
};

// Implements delayed Nesterov momentum (Liu et al. 2024, with their constant c = 0). Each gradient
// moves the value when it arrives. The momentum changes, and moves the value, only once in P
// gradients, and uses their sum. So it acts as if P workers took one step together. For gradient g,
// rate r, decay w, momentum u and value p:
//   t  = number of earlier gradients
//   g += w p
//   p -= r g,  s += g
//   if P divides t + 1:   m = u m + s,  p -= r u m,  s = 0
// The paper divides g by P, here and in s. This class does not: with local steps, the server
// already scales a gradient to its part of a step of all workers
// (torchps/server/store/async_push.h), so s is the mean over P gradients. If P = 1, this is
// torch.optim.SGD with nesterov. Arrays between steps: "momentum_buffer" = m and "gathered" = s.
//
// Each element has a separate t. A gradient that lacks the element does not raise t, so the
// momentum of this element waits until P gradients contained it.
class DelayedNesterov final : public Optimizer {
 public:
  struct Options {
    double momentum = 0;  // above 0
    // P: the number of workers that the job asks for, not of live slots. So a replay of the push
    // log computes the same result.
    int workers = 1;
  };

  // REQUIRES: this machine supports `set`; workers >= 1.
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
