#pragma once

#include <cstdint>

namespace torchps {

// What a server has settled about a gradient before a block takes it: with the gradient itself, all
// that the change of the block depends on. The push log keeps it, so that a replay sees the same.
struct GradientTerms {
  double rate_factor = 1.0;  // on the learning rate, and on the share
  double share = 1.0;        // of the way, that an averaged block moves to what was pushed
  // Part of the job's samples that were handed out before the gradient's own, in 2^-32.
  uint32_t progress = 0;
  double gradient_factor = 1.0;  // on the gradient, before the optimizer's moments take it

  friend bool operator==(const GradientTerms& a, const GradientTerms& b) {
    return a.rate_factor == b.rate_factor && a.share == b.share && a.progress == b.progress &&
           a.gradient_factor == b.gradient_factor;
  }
};

}  // namespace torchps
