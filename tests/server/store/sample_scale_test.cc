#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "torchps/server/store/gradient_sum.h"

namespace torchps {
namespace {

// Returns the scale of a job with four workers and two batches of 32 per step.
SampleScale Of(const std::string& training, const std::string& more) {
  JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "workers: 4 training { batch_size: 32 accumulate: 2 " + training + " } " + more, &job));
  return GetSampleScale(job);
}

TEST(SampleScaleTest, EqualBatchesNeedNoScale) {
  EXPECT_EQ(Of("", "optimizer { sgd {} }").of, SampleScale::Of::kNothing);
}

TEST(SampleScaleTest, UnequalBatchesScaleTheRate) {
  const SampleScale by_speed = Of("balance: SPEED", "optimizer { sgd {} }");
  EXPECT_EQ(by_speed.of, SampleScale::Of::kRate);
  EXPECT_EQ(by_speed.whole_step, 64);
  EXPECT_FALSE(by_speed.is_of_all);
  for (const char* balance : {"", "balance: SPEED"}) {
    const SampleScale global =
        Of(std::string("global_batch: true ") + balance, "optimizer { sgd {} }");
    EXPECT_EQ(global.of, SampleScale::Of::kRate);
    EXPECT_EQ(global.whole_step, 64);
    EXPECT_TRUE(global.is_of_all);
  }
}

TEST(SampleScaleTest, LocalStepsScaleTheGradient) {
  for (const char* balance : {"", "balance: SPEED"}) {
    const SampleScale scale = Of(balance, "optimizer { sgd {} } local { steps: 8 }");
    EXPECT_EQ(scale.of, SampleScale::Of::kGradient);
    EXPECT_EQ(scale.whole_step, 4 * 8 * 64);
    EXPECT_TRUE(scale.is_of_all);
  }
  EXPECT_EQ(Of("global_batch: true", "optimizer { sgd {} } local { steps: 8 }").whole_step, 8 * 64);
}

TEST(SampleScaleTest, AdaptiveOptimizersScaleTheRate) {
  for (const char* optimizer : {"adam {}", "adamw {}", "adagrad {}", "rmsprop {}"}) {
    const SampleScale scale =
        Of("", std::string("local { steps: 8 } optimizer { ") + optimizer + " }");
    EXPECT_EQ(scale.of, SampleScale::Of::kRate) << optimizer;
    EXPECT_EQ(scale.whole_step, 4 * 8 * 64) << optimizer;
    EXPECT_TRUE(scale.is_of_all) << optimizer;
  }
}

}  // namespace
}  // namespace torchps
