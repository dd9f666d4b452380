#include "worker/gradient/gradient_scan.h"

#include <array>
#include <cmath>
#include <cstddef>

namespace torchps {

GradientScan ScanGradient(absl::Span<const float> elements) {
  // Independent sums, so that the compiler may add several elements at once.
  constexpr size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= elements.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double element = elements[i + lane];
      sums[lane] += element * element;
    }
  }
  double sum = 0;
  for (; i < elements.size(); ++i) {
    const double element = elements[i];
    sum += element * element;
  }
  for (const double lane : sums) sum += lane;
  return {std::isfinite(sum), std::sqrt(sum)};
}

bool ClipGradient(absl::Span<float> elements, double norm, double clip_norm) {
  if (clip_norm <= 0 || norm <= clip_norm) return false;
  const auto factor = static_cast<float>(clip_norm / (norm + 1e-6));
  for (float& element : elements) element *= factor;
  return true;
}

}  // namespace torchps
