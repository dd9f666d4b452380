#include <limits>

#include "gtest/gtest.h"
#include "torchps/worker/loop/step_accounting.h"

namespace torchps {
namespace {

TEST(ProgressTest, PrintsOneLinePerIntervalWithMeans) {
  Progress progress(/*slot=*/2, absl::Seconds(1), /*now=*/absl::Seconds(10));
  progress.Add(100, 50, absl::Milliseconds(300));
  EXPECT_EQ(progress.Line(1, 7, absl::Seconds(10.5)), "");
  progress.Add(100, 30, absl::Milliseconds(200));
  EXPECT_EQ(progress.Line(1, 8, absl::Seconds(12)),
            "torchps_worker progress slot=2 epoch=1 step=8 loss=0.4 accuracy=- "
            "samples_per_s=100 wait_share=0.25");
  EXPECT_EQ(progress.Line(1, 8, absl::Seconds(14)), "") << "no step since the last line";
}

// A model that has diverged must not be reported with a loss of 0.
TEST(ProgressTest, NonFiniteLossesAreNotReportedAsZero) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Progress progress(/*slot=*/0, absl::Seconds(1), /*now=*/absl::ZeroDuration());
  progress.Add(100, 50, absl::ZeroDuration());
  progress.Add(100, kNan, absl::ZeroDuration());
  EXPECT_EQ(progress.Line(1, 2, absl::Seconds(1)),
            "torchps_worker progress slot=0 epoch=1 step=2 loss=0.5 accuracy=- "
            "samples_per_s=200 wait_share=0.00");
  progress.Add(100, std::numeric_limits<double>::infinity(), absl::ZeroDuration());
  progress.Add(100, kNan, absl::ZeroDuration());
  EXPECT_EQ(progress.Line(1, 4, absl::Seconds(2)),
            "torchps_worker progress slot=0 epoch=1 step=4 loss=nan accuracy=- "
            "samples_per_s=200 wait_share=0.00");
}

}  // namespace
}  // namespace torchps
