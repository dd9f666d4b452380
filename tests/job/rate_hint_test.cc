#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/async_job.h"
#include "torchps/job/job_spec.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string HintOn(const std::string& text) {
  JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  return RateHint(*NormalizeJobSpec(AsyncUnlessSaid(job)));
}

TEST(RateHintTest, WarnsAboutAHighLearningRateInAsync) {
  EXPECT_THAT(HintOn("workers: 3 optimizer { adam {} learning_rate: 0.008 }"),
              HasSubstr("optimizer.learning_rate is 0.008, probably too high for 3 workers with "
                        "consistency.apply EACH_PUSH, whose gradients are 2 updates late; use at "
                        "most 0.00333333"));
  EXPECT_THAT(HintOn("workers: 2 optimizer { sgd { momentum: 0.9 } learning_rate: 0.05 }"),
              HasSubstr("are 1 update late; use at most 0.02"));
}

TEST(RateHintTest, DoesNotWarnAboutAModerateLearningRate) {
  EXPECT_THAT(HintOn("workers: 3 optimizer { adam {} learning_rate: 0.002 }"), IsEmpty());
  EXPECT_THAT(HintOn("workers: 3 optimizer { sgd {} learning_rate: 0.1 }"), IsEmpty());
  EXPECT_THAT(HintOn("workers: 3 optimizer { sgd { momentum: 0.9 } learning_rate: 0.01 }"),
              IsEmpty());
}

TEST(RateHintTest, DoesNotWarnWithoutStaleGradients) {
  EXPECT_THAT(HintOn("workers: 3 consistency { mode: SYNC } "
                     "optimizer { adam {} learning_rate: 0.1 }"),
              IsEmpty());
  EXPECT_THAT(HintOn("workers: 1 optimizer { adam {} learning_rate: 0.1 }"), IsEmpty());
}

TEST(RateHintTest, WithAGlobalBatchAHigherLearningRateIsAllowed) {
  const std::string job = "workers: 4 training { global_batch: true } optimizer { adam {} ";
  EXPECT_THAT(HintOn(job + "learning_rate: 0.01 }"), IsEmpty());
  EXPECT_THAT(HintOn(job + "learning_rate: 0.02 }"), HasSubstr("use at most 0.01"));
}

}  // namespace
}  // namespace torchps
