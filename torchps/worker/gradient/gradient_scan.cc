#include "torchps/worker/gradient/gradient_scan.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "torchps/worker/gradient/sum_order.h"

namespace torchps {
namespace {

struct SumRuns {
  template <typename Number>
  [[gnu::always_inline]] static double OneRun(const Number* __restrict numbers, int64_t n) {
    double lanes[SumOrder::kLanes] = {};
    const int64_t whole_rows = n - n % SumOrder::kLanes;
    for (int64_t row = 0; row < whole_rows; row += SumOrder::kLanes) {
      for (int lane = 0; lane < SumOrder::kLanes; ++lane) {
        lanes[lane] += SumOrder::Term(numbers[row + lane]);
      }
    }
    for (int64_t i = whole_rows; i < n; ++i) lanes[i - whole_rows] += SumOrder::Term(numbers[i]);
    for (int half = SumOrder::kLanes / 2; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    return lanes[0];
  }

  // Writes the sum of each run to `sums`.
  template <typename Number>
  [[gnu::always_inline]] static void Run(const Number* numbers, int64_t n, double* sums) {
    for (int64_t begin = 0; begin < n; begin += SumOrder::kRun) {
      const int64_t left = n - begin;
      *sums++ = OneRun(numbers + begin, left < SumOrder::kRun ? left : SumOrder::kRun);
    }
  }
};

struct ScaleLoop {
  [[gnu::always_inline]] static void Run(float* elements, int64_t n, float factor) {
    for (int64_t i = 0; i < n; ++i) elements[i] *= factor;
  }
};

double SumOfSquares(absl::Span<const float> elements, InstructionSet set) {
  if (elements.empty()) return 0;
  const auto count = static_cast<int64_t>(elements.size());
  std::vector<double> sums(SumOrder::Runs(count));
  RunVectorised<SumRuns>(set, elements.data(), count, sums.data());
  while (sums.size() > 1) {
    std::vector<double> next(SumOrder::Runs(static_cast<int64_t>(sums.size())));
    RunVectorised<SumRuns>(set, static_cast<const double*>(sums.data()),
                           static_cast<int64_t>(sums.size()), next.data());
    sums = std::move(next);
  }
  return sums.front();
}

}  // namespace

GradientScan ScanGradient(absl::Span<const float> elements, InstructionSet set) {
  const double sum = SumOfSquares(elements, set);
  return {std::isfinite(sum), std::sqrt(sum)};
}

bool ClipGradient(absl::Span<float> elements, double norm, double clip_norm) {
  if (clip_norm <= 0 || norm <= clip_norm) return false;
  RunVectorised<ScaleLoop>(BestInstructionSet(), elements.data(),
                           static_cast<int64_t>(elements.size()), ClipFactor(norm, clip_norm));
  return true;
}

}  // namespace torchps
