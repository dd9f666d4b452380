#include "torchps/server/parked/byte_budget.h"

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ByteBudgetTest : public ::testing::Test {
 protected:
  // Takes bytes for the call `name`. If the call waits, its name is recorded when it gets the
  // bytes.
  ByteBudget::Waiting Take(int64_t bytes, const std::string& name) {
    return budget_.Take(bytes, [this, name] { served_.push_back(name); });
  }

  ByteBudget budget_{10};
  std::vector<std::string> served_;
};

TEST_F(ByteBudgetTest, GrantsAvailableBytesAtOnce) {
  EXPECT_EQ(Take(6, "a"), 0u);
  EXPECT_EQ(Take(4, "b"), 0u);
  EXPECT_EQ(budget_.held(), 10);
  EXPECT_THAT(served_, IsEmpty());
}

TEST_F(ByteBudgetTest, ServesWaitersInOrder) {
  Take(10, "holder");
  EXPECT_NE(Take(5, "a"), 0u);
  EXPECT_NE(Take(5, "b"), 0u);
  EXPECT_NE(Take(5, "c"), 0u);
  budget_.GiveBack(10);
  EXPECT_THAT(served_, ElementsAre("a", "b"));
  budget_.GiveBack(5);
  EXPECT_THAT(served_, ElementsAre("a", "b", "c"));
  EXPECT_EQ(budget_.held(), 10);
}

TEST_F(ByteBudgetTest, SmallRequestsDoNotOvertakeLargeOnes) {
  Take(8, "holder");
  Take(9, "large");
  EXPECT_NE(Take(1, "small"), 0u);
  EXPECT_THAT(served_, IsEmpty());
  budget_.GiveBack(8);
  EXPECT_THAT(served_, ElementsAre("large", "small"));
}

TEST_F(ByteBudgetTest, AnOversizedRequestIsServedAlone) {
  Take(1, "holder");
  EXPECT_NE(Take(25, "huge"), 0u);
  budget_.GiveBack(1);
  EXPECT_THAT(served_, ElementsAre("huge"));
  EXPECT_NE(Take(1, "small"), 0u);
  budget_.GiveBack(25);
  EXPECT_THAT(served_, ElementsAre("huge", "small"));
}

TEST_F(ByteBudgetTest, ALeavingWaiterDoesNotBlockOthers) {
  Take(6, "holder");
  const ByteBudget::Waiting large = Take(9, "large");
  Take(4, "small");
  EXPECT_TRUE(budget_.Leave(large));
  EXPECT_THAT(served_, ElementsAre("small"));
  EXPECT_EQ(budget_.held(), 10);
}

TEST_F(ByteBudgetTest, AServedWaiterCannotLeave) {
  Take(10, "holder");
  const ByteBudget::Waiting waiting = Take(10, "a");
  budget_.GiveBack(10);
  EXPECT_FALSE(budget_.Leave(waiting));
  EXPECT_EQ(budget_.held(), 10);
}

TEST_F(ByteBudgetTest, TryTakeDoesNotQueue) {
  EXPECT_TRUE(budget_.TryTake(6));
  EXPECT_FALSE(budget_.TryTake(5));
  EXPECT_FALSE(budget_.waits());
  Take(5, "waiting");
  EXPECT_TRUE(budget_.waits());
  EXPECT_FALSE(budget_.TryTake(1)) << "another waiter was first";
  budget_.GiveBack(6);
  EXPECT_FALSE(budget_.waits());
  EXPECT_THAT(served_, ElementsAre("waiting"));
}

TEST_F(ByteBudgetTest, AContinuationMayTakeAndReturnBytes) {
  Take(10, "holder");
  budget_.Take(10, [this] {
    served_.push_back("first");
    budget_.GiveBack(10);
  });
  Take(3, "second");
  budget_.GiveBack(10);
  EXPECT_THAT(served_, ElementsAre("first", "second"));
  EXPECT_EQ(budget_.held(), 3);
}

TEST_F(ByteBudgetTest, ServesALongQueueWithoutRecursion) {
  constexpr int kLine = 1000;
  Take(10, "holder");
  int depth = 0;
  int served = 0;
  for (int i = 0; i < kLine; ++i) {
    budget_.Take(10, [&, i] {
      EXPECT_EQ(++depth, 1);
      EXPECT_EQ(served++, i) << "first come, first served";
      budget_.GiveBack(10);
      --depth;
    });
  }
  budget_.GiveBack(10);
  EXPECT_EQ(served, kLine);
  EXPECT_EQ(budget_.held(), 0);
}

TEST_F(ByteBudgetTest, RemembersTheHighWaterMark) {
  Take(7, "a");
  budget_.GiveBack(7);
  Take(2, "b");
  EXPECT_EQ(budget_.high_water(), 7);
}

TEST(ByteBudgetThreadsTest, ThreadsNeverHoldMoreThanTheBudget) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  constexpr int kThreads = 4;
  constexpr int kShares = 2000;
  ByteBudget budget(10);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&budget, seed, i] {
      std::minstd_rand random(seed + i);
      for (int share = 0; share < kShares; ++share) {
        const int64_t bytes = 1 + random() % 10;
        // If the call waits, the thread that grants the bytes returns them.
        if (budget.Take(bytes, [&budget, bytes] { budget.GiveBack(bytes); }) == 0) {
          budget.GiveBack(bytes);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.held(), 0);
  EXPECT_LE(budget.high_water(), budget.capacity());
}

}  // namespace
}  // namespace torchps
