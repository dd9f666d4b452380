#pragma once

#include <cstdint>

#include "server/optimizer/optimizer.h"

namespace torchps {

// Implements torch.optim.SGD. For gradient g, rate r, decay w and value p:
//   g += w p
//   b  = g in the first step, momentum b + (1 - dampening) g later   (with momentum only)
//   g  = g + momentum b with Nesterov (Sutskever et al. 2013), else b
//   p -= r g
// Slot "momentum_buffer" = b, only with momentum.
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

}  // namespace torchps
