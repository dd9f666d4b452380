#include "worker/loop/progress.h"

#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(ProgressTest, OneLinePerIntervalWithTheMeansSinceTheLast) {
  Progress progress(/*slot=*/2, absl::Seconds(1), /*now=*/absl::Seconds(10));
  progress.Add(100, 50, absl::Milliseconds(300));
  EXPECT_EQ(progress.Line(1, 7, absl::Seconds(10.5)), "");
  progress.Add(100, 30, absl::Milliseconds(200));
  EXPECT_EQ(progress.Line(1, 8, absl::Seconds(12)),
            "torchps_worker progress slot=2 epoch=1 step=8 loss=0.4000 accuracy=- "
            "samples_per_s=100 wait_share=0.25");
  EXPECT_EQ(progress.Line(1, 8, absl::Seconds(14)), "") << "no step since";
}

}  // namespace
}  // namespace torchps
