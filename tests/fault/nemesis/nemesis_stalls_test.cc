// Tests that the nemesis test detects a slot that stalls.

#include "tests/fault/nemesis/nemesis_stalls.h"

#include <vector>

#include "gtest/gtest.h"

namespace torchps {
namespace {

std::vector<absl::Duration> At(const std::vector<double>& seconds) {
  std::vector<absl::Duration> times;
  for (const double time : seconds) times.push_back(absl::Seconds(time));
  return times;
}

TEST(NemesisStalls, CountsAStallCausedByAnotherSlotsFault) {
  NemesisStalls stalls;
  const int cut = stalls.Begin({1}, false, absl::Seconds(2));
  stalls.End(cut, absl::Seconds(9));
  const auto verdict = stalls.Judge({At({1, 2, 6, 7}), At({1, 10})});
  EXPECT_EQ(verdict.longest, absl::Seconds(4));
  EXPECT_EQ(verdict.slot, 0);
  EXPECT_EQ(verdict.at, absl::Seconds(6));
  EXPECT_EQ(verdict.judged, 3);
  EXPECT_EQ(verdict.explained, 1) << "slot 1 stalled because of a fault of slot 1";
}

TEST(NemesisStalls, SubtractsTheTimeThatAServerWasAway) {
  NemesisStalls stalls;
  // A server is away from 0 to 4 and from 5 to 6. Time that two faults share is subtracted once,
  // and time before the first step not at all.
  stalls.End(stalls.Begin({}, true, absl::Seconds(0)), absl::Seconds(3));
  stalls.End(stalls.Begin({}, true, absl::Seconds(2)), absl::Seconds(4));
  stalls.End(stalls.Begin({}, true, absl::Seconds(5)), absl::Seconds(6));
  const auto verdict = stalls.Judge({At({1, 8})});
  EXPECT_EQ(verdict.longest_in_all, absl::Seconds(7));
  EXPECT_EQ(verdict.longest, absl::Seconds(3)) << "from 4 to 5, and from 6 to 8";
}

TEST(NemesisStalls, CountsAStallAfterTheFaultEnded) {
  NemesisStalls stalls;
  const int frozen = stalls.Begin({0}, false, absl::Seconds(1));
  stalls.End(frozen, absl::Seconds(2));
  stalls.End(frozen, absl::Seconds(100));
  EXPECT_EQ(stalls.Judge({At({3, 8})}).longest, absl::Seconds(5));
}

}  // namespace
}  // namespace torchps
