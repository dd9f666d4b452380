#include "torchps/worker/loop/lease_cursor.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

DataLease Lease(int64_t begin, int64_t end) {
  DataLease lease;
  lease.set_id(7);
  lease.set_epoch(1);
  lease.set_begin(begin);
  lease.set_end(end);
  lease.set_progress_begin(0.25);
  lease.set_progress_end(0.5);
  return lease;
}

LeaseCursor TenSamples() { return LeaseCursor(/*seed=*/1, /*samples=*/10, /*shuffle=*/false); }

TEST(LeaseCursorTest, StepsFollowEachOtherToTheLeasesEnd) {
  LeaseCursor in_hand = TenSamples();
  EXPECT_EQ(in_hand.lease(), nullptr);
  ASSERT_TRUE(in_hand.Start(Lease(2, 7)).ok());
  EXPECT_TRUE(in_hand.nothing_taken());

  const StepWork first = in_hand.Next(3);
  EXPECT_THAT(first.samples, ElementsAre(2, 3, 4));
  EXPECT_THAT(first.upcoming, ElementsAre(5, 6));
  EXPECT_EQ(first.position, 2);
  EXPECT_DOUBLE_EQ(first.progress_begin, 0.25);
  EXPECT_DOUBLE_EQ(first.progress_end, 0.4);
  EXPECT_FALSE(in_hand.nothing_taken());
  EXPECT_FALSE(in_hand.all_taken());

  const StepWork last = in_hand.Next(3);
  EXPECT_THAT(last.samples, ElementsAre(5, 6)) << "the remainder is a step, too";
  EXPECT_THAT(last.upcoming, IsEmpty());
  EXPECT_EQ(last.position, 5);
  EXPECT_DOUBLE_EQ(last.progress_begin, 0.4);
  EXPECT_DOUBLE_EQ(last.progress_end, 0.5);
  EXPECT_EQ(in_hand.part().begin(), 3) << "counted from the lease's first sample";
  EXPECT_EQ(in_hand.part().end(), 5);
  EXPECT_TRUE(in_hand.all_taken());
  EXPECT_EQ(in_hand.Finish(), 7);
  EXPECT_EQ(in_hand.lease(), nullptr);
}

TEST(LeaseCursorTest, ReturnsAStepAgainAfterRewind) {
  LeaseCursor in_hand = TenSamples();
  ASSERT_TRUE(in_hand.Start(Lease(0, 4)).ok());
  in_hand.Next(2);
  in_hand.Next(2);
  EXPECT_TRUE(in_hand.all_taken());
  in_hand.Rewind();
  EXPECT_FALSE(in_hand.all_taken());
  EXPECT_THAT(in_hand.Next(2).samples, ElementsAre(2, 3));
  EXPECT_EQ(in_hand.part().begin(), 2);
}

TEST(LeaseCursorTest, StartsTheNextLeaseAtItsBeginning) {
  LeaseCursor in_hand = TenSamples();
  ASSERT_TRUE(in_hand.Start(Lease(0, 4)).ok());
  in_hand.Next(4);
  in_hand.Finish();
  ASSERT_TRUE(in_hand.Start(Lease(4, 10)).ok());
  EXPECT_TRUE(in_hand.nothing_taken());
  EXPECT_THAT(in_hand.Next(2).samples, ElementsAre(4, 5));
}

TEST(LeaseCursorTest, RefusesALeaseOutsideTheEpoch) {
  LeaseCursor in_hand = TenSamples();
  const absl::Status status = in_hand.Start(Lease(8, 12));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(in_hand.lease(), nullptr);
}

}  // namespace
}  // namespace torchps
