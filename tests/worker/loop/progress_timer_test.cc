#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"
#include "torchps/worker/loop/step_accounting.h"

namespace torchps {
namespace {

TEST(ProgressTimerTest, CountsSinceTheLastBeatExceptPauses) {
  ManualClock clock;
  ProgressTimer pulse(&clock);
  clock.Advance(absl::Seconds(5));
  EXPECT_EQ(pulse.stalled_for(), absl::ZeroDuration()) << "it has not begun";
  pulse.Beat();
  clock.Advance(absl::Seconds(7));
  EXPECT_EQ(pulse.stalled_for(), absl::Seconds(7));
  {
    const ProgressTimer::Rest rest(&pulse);
    clock.Advance(absl::Seconds(11));
    EXPECT_EQ(pulse.stalled_for(), absl::ZeroDuration());
  }
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(pulse.stalled_for(), absl::Seconds(2)) << "work resumes when the rest ends";
  pulse.Beat();
  EXPECT_EQ(pulse.stalled_for(), absl::ZeroDuration());
}

}  // namespace
}  // namespace torchps
