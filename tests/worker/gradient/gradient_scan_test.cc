#include "torchps/worker/gradient/gradient_scan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "torchps/common/cpu/cpu_flags.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(GradientScanTest, ReturnsTheEuclideanNorm) {
  const std::vector<float> gradient = {3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4};
  const GradientScan scan = ScanGradient(gradient);
  EXPECT_TRUE(scan.finite);
  EXPECT_DOUBLE_EQ(scan.norm, 5);
}

TEST(GradientScanTest, AnEmptyGradientIsFinite) {
  EXPECT_TRUE(ScanGradient({}).finite);
  EXPECT_EQ(ScanGradient({}).norm, 0);
}

TEST(GradientScanTest, FindsANonFiniteElementAtAnyIndex) {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (size_t place = 0; place < 19; ++place) {
      std::vector<float> gradient(19, 1.0f);
      gradient[place] = bad;
      EXPECT_FALSE(ScanGradient(gradient).finite) << bad << " at " << place;
    }
  }
}

TEST(GradientScanTest, TheLargestFiniteElementsAreFinite) {
  const std::vector<float> gradient(1000, std::numeric_limits<float>::max());
  EXPECT_TRUE(ScanGradient(gradient).finite);
}

// Returns the sums of runs of 512 terms, added in the order that
// torchps/worker/gradient/sum_order.h documents.
std::vector<double> SumsOfRuns(const std::vector<double>& terms) {
  std::vector<double> sums;
  for (size_t begin = 0; begin < terms.size(); begin += 512) {
    std::vector<double> lanes(32, 0.0);
    for (size_t i = begin; i < std::min(begin + 512, terms.size()); ++i) {
      lanes[(i - begin) % 32] += terms[i];
    }
    for (const size_t step : {16, 8, 4, 2, 1}) {
      for (size_t lane = 0; lane < step; ++lane) lanes[lane] += lanes[lane + step];
    }
    sums.push_back(lanes[0]);
  }
  return sums;
}

TEST(GradientScanTest, EachInstructionSetAddsInTheGpusOrder) {
  for (const size_t count : {1, 31, 32, 33, 511, 512, 513, 5000, 262144, 262145, 600000}) {
    uint64_t random = count;
    SCOPED_TRACE(testing::Message() << count << " elements, seed " << random);
    std::vector<float> gradient(count);
    std::vector<double> sums;
    double one_by_one = 0;
    for (float& element : gradient) {
      element = std::ldexp(static_cast<float>(UnitDouble(SplitMix64(random))) - 0.5f,
                           static_cast<int>(SplitMix64(random) % 30) - 25);
      sums.push_back(static_cast<double>(element) * static_cast<double>(element));
      one_by_one += sums.back();
    }
    do {
      sums = SumsOfRuns(sums);
    } while (sums.size() > 1);
    for (const InstructionSet set : InstructionSets()) {
      EXPECT_EQ(ScanGradient(gradient, set).norm, std::sqrt(sums[0])) << InstructionSetName(set);
    }
    EXPECT_NEAR(sums[0], one_by_one, 1e-9 * one_by_one);
    // In a shorter sum, the order of the terms may not matter.
    if (count > 5000) {
      EXPECT_NE(sums[0], one_by_one);
    }
  }
}

TEST(ClipGradientTest, ScalesALargerGradientDownToTheLimit) {
  std::vector<float> gradient = {30, 40};
  EXPECT_TRUE(ClipGradient(absl::MakeSpan(gradient), 50, 5));
  EXPECT_NEAR(ScanGradient(gradient).norm, 5, 1e-5);
  EXPECT_NEAR(gradient[0], 3, 1e-5);
}

TEST(ClipGradientTest, KeepsASmallerGradientAndEachWithoutALimit) {
  std::vector<float> gradient = {3, 4};
  EXPECT_FALSE(ClipGradient(absl::MakeSpan(gradient), 5, 5));
  EXPECT_FALSE(ClipGradient(absl::MakeSpan(gradient), 5, 0));
  EXPECT_EQ(gradient, (std::vector<float>{3, 4}));
}

}  // namespace
}  // namespace torchps
