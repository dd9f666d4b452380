#include "torchps/server/job/job_membership.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/manual_clock.h"
#include "torchps/server/job/slot_clocks.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLease = absl::Seconds(10);

class JobMembershipTest : public ::testing::Test {
 protected:
  JobMembershipTest() {
    JobHarness::Options model;
    model.job = "membership { lease_seconds: 10 }";
    absl::StatusOr<JobParts> parts = MakeJobParts(JobHarness::Hello(model), &clock_);
    EXPECT_TRUE(parts.ok()) << parts.status();
    parts_ = *std::move(parts);
    segments_.emplace(parts_.layout);
    membership_.emplace(parts_, &*segments_, &clock_);
  }

  JobMembership& membership() { return *membership_; }

  ManualClock clock_;
  JobParts parts_;
  std::optional<PushSegments> segments_;
  std::optional<JobMembership> membership_;
};

TEST_F(JobMembershipTest, AdmitsOnlyTheLiveIncarnation) {
  EXPECT_TRUE(absl::IsAborted(membership().Admit(0, 1)));
  ASSERT_TRUE(membership().Enter(0, 1).ok());
  EXPECT_TRUE(membership().Admit(0, 1).ok());
  ASSERT_TRUE(membership().Enter(0, 2).ok());
  EXPECT_TRUE(membership().Admit(0, 2).ok());
  const absl::Status superseded = membership().Admit(0, 1);
  EXPECT_TRUE(absl::IsAborted(superseded));
  EXPECT_THAT(std::string(superseded.message()), HasSubstr("incarnation 1 of slot 0 is not live"));
  EXPECT_TRUE(absl::IsAborted(membership().Enter(0, 1).status()));
}

// The slot number comes from a frame and is used before other checks of the frame.
TEST_F(JobMembershipTest, AnInvalidSlotIsNotLive) {
  for (const SlotId slot :
       {-1, kMaxSlots, std::numeric_limits<SlotId>::min(), std::numeric_limits<SlotId>::max()}) {
    EXPECT_TRUE(absl::IsAborted(membership().Admit(slot, 1))) << slot;
  }
  EXPECT_TRUE(absl::IsAborted(membership().Admit(0, 0)))
      << "slot 0 is free, and 0 is not an incarnation";
}

TEST_F(JobMembershipTest, ALeftIncarnationIsNotLive) {
  ASSERT_TRUE(membership().Enter(0, 1).ok());
  ASSERT_TRUE(membership().Enter(1, 1).ok());
  EXPECT_EQ(membership().live_slots(), 2);
  membership().Leave(0, 1);
  membership().Leave(0, 1);
  EXPECT_EQ(membership().live_slots(), 1);
  EXPECT_TRUE(absl::IsAborted(membership().Admit(0, 1)));
}

TEST_F(JobMembershipTest, AReplacedIncarnationCannotRemoveItsSuccessor) {
  ASSERT_TRUE(membership().Enter(0, 1).ok());
  ASSERT_TRUE(membership().Enter(0, 2).ok());
  membership().Leave(0, 1);
  EXPECT_TRUE(membership().Admit(0, 2).ok());
  EXPECT_EQ(membership().live_slots(), 1);
}

TEST_F(JobMembershipTest, IgnoresALeaveOfAnInvalidSlot) {
  membership().Leave(-1, 1);
  membership().Leave(kMaxSlots, 1);
  EXPECT_EQ(membership().live_slots(), 0);
}

TEST_F(JobMembershipTest, ASlotIsLiveUntilItsLeaseExpires) {
  ASSERT_TRUE(membership().Enter(0, 1).ok());
  ASSERT_TRUE(membership().Enter(1, 1).ok());
  clock_.Advance(kLease / 2);
  EXPECT_TRUE(membership().Renew(1, 1).ok());
  EXPECT_FALSE(membership().ExpireLeases());
  clock_.Advance(kLease / 2 + absl::Milliseconds(1));
  EXPECT_TRUE(membership().ExpireLeases());
  EXPECT_TRUE(absl::IsAborted(membership().Admit(0, 1)));
  EXPECT_TRUE(membership().Admit(1, 1).ok());
  EXPECT_FALSE(membership().ExpireLeases());
}

TEST_F(JobMembershipTest, MinClockIsTheLowestLiveClock) {
  ASSERT_TRUE(membership().Enter(0, 1).ok());
  ASSERT_TRUE(membership().Enter(1, 1).ok());
  EXPECT_EQ(membership().Advance(0, 1, 3), std::optional<Step>(3));
  EXPECT_EQ(membership().min_clock(), 0);
  EXPECT_EQ(membership().Advance(1, 1, 2), std::optional<Step>(2));
  EXPECT_EQ(membership().min_clock(), 2);
  membership().Leave(1, 1);
  EXPECT_EQ(membership().min_clock(), 3);
}

TEST_F(JobMembershipTest, AReplacedIncarnationCannotAdvanceTheClock) {
  ASSERT_TRUE(membership().Enter(0, 1).ok());
  ASSERT_TRUE(membership().Enter(0, 2).ok());
  EXPECT_EQ(membership().Advance(0, 1, 5), std::nullopt);
  EXPECT_EQ(membership().Advance(7, 1, 5), std::nullopt);
  EXPECT_EQ(membership().min_clock(), 0);
}

// The slot has also entered another server, which is ahead. So its first pull here has a higher
// clock.
TEST_F(JobMembershipTest, OnlyTheFirstPullRaisesTheSlotsClock) {
  ASSERT_TRUE(membership().Enter(0, 1).ok());
  const auto first = membership().BeginPull(0, 1, /*claimed=*/4, /*ahead=*/false);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->judged, 4);
  EXPECT_EQ(first->recorded, 4);
  EXPECT_TRUE(first->jumped);
  const auto later = membership().BeginPull(0, 1, /*claimed=*/9, /*ahead=*/false);
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(later->judged, 9);
  EXPECT_EQ(later->recorded, 4);
  EXPECT_FALSE(later->jumped);
}

TEST_F(JobMembershipTest, FurthestBehindIsTheSlowestSlotWithTheLongestSilence) {
  SlotActivity activity(&clock_);
  EXPECT_FALSE(membership().FurthestBehind(activity).has_value());
  for (const SlotId slot : {0, 1, 2}) {
    ASSERT_TRUE(membership().Enter(slot, 1).ok());
    activity.RecordCall(slot);
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(membership().FurthestBehind(activity)->slot, 0);
  EXPECT_EQ(membership().FurthestBehind(activity)->silence, absl::Seconds(3));
  // Slot 0 is now ahead of the others, so the silence does not count.
  membership().Advance(0, 1, 1);
  EXPECT_EQ(membership().FurthestBehind(activity)->slot, 1);
  EXPECT_EQ(membership().FurthestBehind(activity)->silence, absl::Seconds(2));
  activity.RecordCall(1);
  EXPECT_EQ(membership().FurthestBehind(activity)->slot, 2);
  membership().Leave(2, 1);
  EXPECT_EQ(membership().FurthestBehind(activity)->slot, 1);
}

TEST_F(JobMembershipTest, AbortsAPullOfAnEndedIncarnation) {
  EXPECT_TRUE(absl::IsAborted(membership().BeginPull(0, 1, 0, /*ahead=*/false).status()));
}

}  // namespace
}  // namespace torchps
