#include "torchps/tools/base/status_line.h"

#include <gtest/gtest.h>

namespace torchps {
namespace {

TEST(StatusLineTest, ParsesAProgressLine) {
  const auto line = ParseStatusLine(
      "torchps_worker progress slot=0 epoch=2 step=340 loss=0.1234 accuracy=- wait_share=0.04");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->program, "torchps_worker");
  EXPECT_EQ(line->event, "progress");
  EXPECT_EQ(line->Field("step"), "340");
  EXPECT_DOUBLE_EQ(*line->Number("loss"), 0.1234);
  EXPECT_FALSE(line->Number("accuracy").has_value());
  EXPECT_FALSE(line->Number("no_such_field").has_value());
}

TEST(StatusLineTest, RejectsNonFiniteNumbers) {
  const auto line = ParseStatusLine("torchps_worker progress loss=nan");
  ASSERT_TRUE(line.has_value());
  EXPECT_FALSE(line->Number("loss").has_value());
  EXPECT_EQ(line->Field("loss"), "nan");
}

TEST(StatusLineTest, IgnoresOtherOutput) {
  for (const char* text : {"", "hello", "torchps_worker", "loss=0.5 step=3",
                           "torchps_worker progress slot", "my torchps_worker progress slot=0"}) {
    EXPECT_FALSE(ParseStatusLine(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace torchps
