#include <cmath>

#include "gtest/gtest.h"
#include "torchps/worker/precision/precision.h"

namespace torchps {
namespace {

// Takes this many finite steps in a row. Returns the number of scale changes.
int TakeFinite(LossScaler* scaler, int steps) {
  int changes = 0;
  for (int step = 0; step < steps; ++step) changes += scaler->OnFinite() ? 1 : 0;
  return changes;
}

bool IsPowerOfTwo(double scale) {
  int exponent = 0;
  return std::frexp(scale, &exponent) == 0.5;
}

TEST(LossScalerTest, AnOverflowHalvesTheScale) {
  LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_TRUE(scaler.OnNotFinite());
  EXPECT_EQ(scaler.scale(), 32768);
  EXPECT_TRUE(scaler.OnNotFinite());
  EXPECT_EQ(scaler.scale(), 16384);
  EXPECT_EQ(scaler.overflows(), 2);
}

TEST(LossScalerTest, TheScaleDoublesAfter2000FiniteSteps) {
  LossScaler scaler;
  EXPECT_EQ(TakeFinite(&scaler, 1999), 0);
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_EQ(TakeFinite(&scaler, 1), 1);
  EXPECT_EQ(scaler.scale(), 131072);
  EXPECT_EQ(TakeFinite(&scaler, 1999), 0) << "the count restarted";
  EXPECT_EQ(TakeFinite(&scaler, 1), 1);
  EXPECT_EQ(scaler.overflows(), 0);
}

TEST(LossScalerTest, AnOverflowRestartsTheCountOfFiniteSteps) {
  LossScaler scaler;
  TakeFinite(&scaler, 1999);
  EXPECT_TRUE(scaler.OnNotFinite());
  EXPECT_EQ(TakeFinite(&scaler, 1999), 0);
  EXPECT_EQ(scaler.scale(), 32768);
  EXPECT_EQ(TakeFinite(&scaler, 1), 1);
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(LossScalerTest, DoesNotHalveAScaleOfOne) {
  LossScaler scaler;
  for (int halvings = 0; halvings < 16; ++halvings) {
    EXPECT_TRUE(scaler.OnNotFinite());
    EXPECT_TRUE(IsPowerOfTwo(scaler.scale()));
  }
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_FALSE(scaler.OnNotFinite());
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_EQ(scaler.overflows(), 16) << "only overflows are counted";
}

TEST(LossScalerTest, TheScaleStopsAtItsMaximum) {
  LossScaler scaler;
  EXPECT_EQ(TakeFinite(&scaler, 100 * LossScaler::kStepsToDouble), 8);
  EXPECT_EQ(scaler.scale(), LossScaler::kMax);
  EXPECT_TRUE(IsPowerOfTwo(scaler.scale()));
}

TEST(LossScalerTest, FormatsTheScaleLine) {
  LossScaler scaler;
  scaler.OnNotFinite();
  EXPECT_EQ(ScaleLine(3, scaler), "torchps_worker loss_scale slot=3 scale=32768 overflows=1");
}

}  // namespace
}  // namespace torchps
