#include <vector>

#include "gtest/gtest.h"
#include "torchps/server/job/slot_clocks.h"

namespace torchps {
namespace {

void RunAll(const std::vector<Watermark::Continuation>& due) {
  for (const auto& continuation : due) continuation();
}

TEST(PullGateTest, AdmitsAPullUpToTheBound) {
  PullGate gate(2);
  RunAll(gate.RaiseMinClock(5));
  EXPECT_TRUE(gate.MayPull(7));
  EXPECT_FALSE(gate.MayPull(8));
}

TEST(PullGateTest, WithoutABoundEveryPullIsAdmitted) {
  PullGate gate(PullGate::kNoBound);
  EXPECT_TRUE(gate.MayPull(1000000));
}

TEST(PullGateTest, ReleasesParkedPullsInOrderOfTheirClocks) {
  PullGate gate(1);
  std::vector<int> released;
  gate.Park(5, [&] { released.push_back(5); });
  gate.Park(3, [&] { released.push_back(3); });
  gate.Park(4, [&] { released.push_back(4); });
  RunAll(gate.RaiseMinClock(1));
  EXPECT_TRUE(released.empty());
  RunAll(gate.RaiseMinClock(3));
  EXPECT_EQ(released, (std::vector<int>{3, 4}));
  EXPECT_EQ(gate.parked(), 1u);
  RunAll(gate.RaiseMinClock(9));
  EXPECT_EQ(released, (std::vector<int>{3, 4, 5}));
}

TEST(PullGateTest, NeverReleasesACancelledPull) {
  PullGate gate(0);
  bool released = false;
  const auto id = gate.Park(1, [&] { released = true; });
  EXPECT_TRUE(gate.Cancel(id));
  EXPECT_FALSE(gate.Cancel(id));
  RunAll(gate.RaiseMinClock(1));
  EXPECT_FALSE(released);
}

TEST(PullGateTest, TheMinClockNeverDecreases) {
  PullGate gate(0);
  RunAll(gate.RaiseMinClock(4));
  RunAll(gate.RaiseMinClock(2));
  EXPECT_EQ(gate.min_clock(), 4);
}

}  // namespace
}  // namespace torchps
