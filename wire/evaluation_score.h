#pragma once

#include <cmath>
#include <optional>

#include "proto/coordinator.pb.h"

namespace torchps {

// What evaluations of one job are compared by: the higher, the better. The accuracy, or without one
// the loss with its sign turned. Nothing where there is no evaluation or it is not finite.
inline std::optional<double> ScoreOf(const EvaluationResult& result) {
  const double score = result.has_accuracy() ? result.accuracy() : -result.loss();
  if (result.samples() == 0 || !std::isfinite(score) || !std::isfinite(result.loss())) {
    return std::nullopt;
  }
  return score;
}

}  // namespace torchps
