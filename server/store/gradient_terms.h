#pragma once

#include <cstdint>

namespace torchps {

// Server-side decisions on a gradient. Together with the gradient, they determine the block's
// change completely. The push log saves them, so that a replay makes the same change.
struct GradientTerms {
  double rate_factor = 1.0;  // multiplies the learning rate and the share
  double share = 1.0;        // how far an averaged block moves to the pushed value
  // Part of the job's samples that were assigned before the gradient's samples, in units of 2^-32.
  uint32_t progress = 0;
  double gradient_factor = 1.0;  // multiplies the gradient before the optimizer uses it

  friend bool operator==(const GradientTerms& a, const GradientTerms& b) {
    return a.rate_factor == b.rate_factor && a.share == b.share && a.progress == b.progress &&
           a.gradient_factor == b.gradient_factor;
  }
};

}  // namespace torchps
