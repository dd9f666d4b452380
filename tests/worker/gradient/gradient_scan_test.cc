#include "worker/gradient/gradient_scan.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace torchps {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(GradientScanTest, TellsTheEuclideanNorm) {
  const std::vector<float> gradient = {3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4};
  const GradientScan scan = ScanGradient(gradient);
  EXPECT_TRUE(scan.finite);
  EXPECT_DOUBLE_EQ(scan.norm, 5);
}

TEST(GradientScanTest, AnEmptyGradientIsFinite) {
  EXPECT_TRUE(ScanGradient({}).finite);
  EXPECT_EQ(ScanGradient({}).norm, 0);
}

TEST(GradientScanTest, FindsANonFiniteElementAtEveryPlace) {
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

TEST(ClipGradientTest, ScalesDownToTheNorm) {
  std::vector<float> gradient = {30, 40};
  EXPECT_TRUE(ClipGradient(absl::MakeSpan(gradient), 50, 5));
  EXPECT_NEAR(ScanGradient(gradient).norm, 5, 1e-5);
  EXPECT_NEAR(gradient[0], 3, 1e-5);
}

TEST(ClipGradientTest, LeavesASmallerGradientAndNoLimitAlone) {
  std::vector<float> gradient = {3, 4};
  EXPECT_FALSE(ClipGradient(absl::MakeSpan(gradient), 5, 5));
  EXPECT_FALSE(ClipGradient(absl::MakeSpan(gradient), 5, 0));
  EXPECT_EQ(gradient, (std::vector<float>{3, 4}));
}

}  // namespace
}  // namespace torchps
