#include "torchps/server/job/slot_clocks.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

constexpr absl::Duration kSlotLease = absl::Seconds(10);

absl::Duration At(double seconds) { return absl::Seconds(seconds); }

int64_t LiveSlots(const SlotClocks& clocks) {
  return std::count_if(clocks.slots().begin(), clocks.slots().end(),
                       [](const auto& entry) { return entry.second.live; });
}

TEST(SlotClocksTest, RefusesAnEndedIncarnation) {
  SlotClocks clocks(absl::Seconds(10));
  clocks.Enter(0, 5, 0, absl::ZeroDuration());
  clocks.Enter(1, 6, 0, absl::ZeroDuration());
  clocks.Advance(1, 3);
  clocks.End(0, 5);
  EXPECT_EQ(clocks.min_clock(), 3);
  EXPECT_TRUE(absl::IsAborted(clocks.CheckEntry(0, 5)));
  EXPECT_TRUE(clocks.CheckEntry(0, 7).ok());
  // The successor has replaced this incarnation, so End() changes nothing.
  clocks.Enter(0, 7, 0, absl::ZeroDuration());
  clocks.End(0, 5);
  EXPECT_EQ(LiveSlots(clocks), 2);
  // The server has not seen this incarnation before.
  clocks.End(2, 8);
  EXPECT_TRUE(absl::IsAborted(clocks.CheckEntry(2, 8)));
}

// The server walks over the live slots at each push and pull.
TEST(SlotClocksTest, SlotsThatLeftAreNotLiveAndStayRefused) {
  SlotClocks clocks(kSlotLease);
  clocks.Enter(0, 1, 0, At(0));
  for (SlotId slot = 1; slot <= 1000; ++slot) {
    clocks.Enter(slot, 10 + slot, 0, At(0));
    if (slot % 2 == 0) clocks.Leave(slot, 10 + slot);
  }
  EXPECT_EQ(clocks.live().size(), 501u);
  clocks.Renew(0, 1, At(5)).IgnoreError();
  EXPECT_EQ(clocks.Expire(At(10)).size(), 500u);
  EXPECT_EQ(clocks.live(), std::set<SlotId>({0}));
  clocks.Advance(0, 7);
  EXPECT_EQ(clocks.min_clock(), 7);
  EXPECT_TRUE(absl::IsAborted(clocks.CheckEntry(500, 509)));
  clocks.Enter(500, 2000, 0, At(10));
  EXPECT_EQ(clocks.live(), std::set<SlotId>({0, 500}));
  clocks.End(500, 2000);
  EXPECT_EQ(clocks.live(), std::set<SlotId>({0}));
}

TEST(SlotClocksTest, MinClockIsTheLowestLiveClock) {
  SlotClocks clocks(kSlotLease);
  clocks.Enter(0, 1, 0, At(0));
  clocks.Enter(1, 2, 0, At(0));
  clocks.Advance(0, 5);
  EXPECT_EQ(clocks.min_clock(), 0);
  clocks.Advance(1, 3);
  EXPECT_EQ(clocks.min_clock(), 3);
  clocks.Leave(1, 2);
  EXPECT_EQ(clocks.min_clock(), 5);
}

TEST(SlotClocksTest, AJoinerStartsAtTheMinClock) {
  SlotClocks clocks(kSlotLease);
  clocks.Enter(0, 1, 0, At(0));
  clocks.Advance(0, 8);
  EXPECT_EQ(clocks.Enter(1, 2, 0, At(0)), 8);
  EXPECT_EQ(clocks.min_clock(), 8);
}

TEST(SlotClocksTest, ARejoiningSlotStartsAtItsLastStep) {
  SlotClocks clocks(kSlotLease);
  clocks.Enter(0, 1, 0, At(0));
  clocks.Enter(1, 2, 0, At(0));
  clocks.Leave(0, 1);
  EXPECT_EQ(clocks.Enter(0, 1, /*own_step=*/12, At(0)), 12);
}

// Before its end, the predecessor was ahead of the restarted server's min clock.
TEST(SlotClocksTest, ASuccessorDoesNotInheritTheClock) {
  for (const bool was_here : {false, true}) {
    SCOPED_TRACE(was_here);
    SlotClocks clocks(kSlotLease);
    clocks.Expect(0, /*clock=*/was_here ? 2 : 3, /*incarnation=*/1, At(0));
    clocks.Expect(1, /*clock=*/2, /*incarnation=*/2, At(0));
    clocks.Enter(1, 2, /*own_step=*/2, At(0));
    if (was_here) {
      EXPECT_EQ(clocks.Enter(0, 1, /*own_step=*/2, At(0)), 2);
      EXPECT_EQ(clocks.BeginPull(0, 2), 2);
      clocks.Advance(0, 3);
    }
    EXPECT_EQ(clocks.Enter(0, 3, /*own_step=*/0, At(0)), 2) << "the min clock";
    EXPECT_EQ(clocks.BeginPull(0, 2), 2);
    EXPECT_EQ(clocks.min_clock(), 2);
  }
}

TEST(SlotClocksTest, RefusesAnOlderIncarnation) {
  SlotClocks clocks(kSlotLease);
  clocks.Enter(0, 5, 0, At(0));
  EXPECT_EQ(clocks.CheckEntry(0, 4).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(clocks.Renew(0, 4, At(1)).code(), absl::StatusCode::kAborted);
  clocks.Leave(0, 4);
  EXPECT_TRUE(clocks.Renew(0, 5, At(1)).ok());
}

TEST(SlotClocksTest, ALeaseExpiresExactlyWithoutARenewal) {
  SlotClocks clocks(kSlotLease);
  clocks.Enter(0, 1, 0, At(0));
  clocks.Enter(1, 2, 0, At(0));
  EXPECT_TRUE(clocks.Renew(0, 1, At(6)).ok());
  EXPECT_TRUE(clocks.Expire(At(9.999)).empty());
  EXPECT_EQ(clocks.Expire(At(10)), (std::vector<SlotId>{1}));
  EXPECT_EQ(clocks.Renew(1, 2, At(11)).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(LiveSlots(clocks), 1);
}

TEST(SlotClocksTest, AnExpiredSlotReleasesTheMinClock) {
  SlotClocks clocks(kSlotLease);
  clocks.Enter(0, 1, 0, At(0));
  clocks.Enter(1, 2, 0, At(0));
  clocks.Advance(0, 7);
  ASSERT_TRUE(clocks.Renew(0, 1, At(9)).ok());
  clocks.Expire(At(12));
  EXPECT_EQ(clocks.min_clock(), 7);
}

TEST(SlotClocksTest, MinClockStaysWhenTheLastSlotLeaves) {
  SlotClocks clocks(kSlotLease);
  clocks.Enter(0, 1, 0, At(0));
  clocks.Advance(0, 7);
  clocks.Leave(0, 1);
  EXPECT_EQ(clocks.min_clock(), 7);
  EXPECT_EQ(clocks.Enter(0, 1, 0, At(1)), 7) << "a joiner starts at the min clock";
}

TEST(SlotClocksTest, OnlyTheFirstPullRecordsItsClock) {
  SlotClocks clocks(kSlotLease);
  clocks.Enter(0, 1, 0, At(0));
  EXPECT_EQ(clocks.BeginPull(0, 4), 4);
  EXPECT_EQ(clocks.min_clock(), 4) << "the worker starts at the largest clock of its servers";
  EXPECT_EQ(clocks.BeginPull(0, 9), 9);
  EXPECT_EQ(clocks.min_clock(), 4) << "a later claim does not raise the clock";
  clocks.Advance(0, 6);
  EXPECT_EQ(clocks.BeginPull(0, 2), 6) << "or lower the clock";
}

TEST(SlotClocksTest, AnEarlyPullRecordsThePreviousStep) {
  SlotClocks clocks(kSlotLease);
  clocks.Enter(0, 1, 0, At(0));
  EXPECT_EQ(clocks.BeginPull(0, 5, /*ahead=*/true), 5) << "judged by the claimed clock";
  EXPECT_EQ(clocks.min_clock(), 4) << "because step 5 is not pushed yet";
}

TEST(SlotClocksTest, RejectsSlotsOutsideTheLimits) {
  const SlotClocks clocks(kSlotLease);
  EXPECT_EQ(clocks.CheckEntry(-1, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(clocks.CheckEntry(kMaxSlots, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(clocks.CheckEntry(0, 0).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SlotClocksTest, ARestartedServerRefusesAReplacedIncarnation) {
  SlotClocks clocks(kSlotLease);
  clocks.Expect(0, /*clock=*/6, /*incarnation=*/7, At(0));
  EXPECT_EQ(clocks.CheckEntry(0, 5).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(clocks.CheckEntry(0, 7).ok()) << "the known process";
  EXPECT_TRUE(clocks.CheckEntry(0, 9).ok());
  clocks.Expire(At(11));
  EXPECT_EQ(clocks.CheckEntry(0, 5).code(), absl::StatusCode::kAborted) << "nor later";
  EXPECT_EQ(clocks.Enter(0, 7, /*own_step=*/6, At(11)), 6);
}

}  // namespace
}  // namespace torchps
