#include "torchps/common/stop_latch.h"

#include <thread>

#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(StopLatchTest, TheFirstReasonWins) {
  StopLatch latch;
  EXPECT_FALSE(latch.stopped());
  EXPECT_EQ(latch.reason(), "");
  latch.Stop("first");
  latch.Stop("second");
  EXPECT_TRUE(latch.stopped());
  EXPECT_EQ(latch.reason(), "first");
}

TEST(StopLatchTest, AWaitEndsWithTheStop) {
  StopLatch latch;
  std::thread stopper([&] { latch.Stop("enough"); });
  EXPECT_TRUE(latch.WaitFor(absl::Hours(1)));
  stopper.join();
}

TEST(StopLatchTest, AWaitEndsWithoutAStop) {
  StopLatch latch;
  EXPECT_FALSE(latch.WaitFor(absl::ZeroDuration()));
  EXPECT_FALSE(latch.WaitFor(absl::Milliseconds(1)));
}

TEST(StopLatchTest, RunsACallbackOnce) {
  StopLatch latch;
  int early = 0;
  int late = 0;
  int gone = 0;
  const StopLatch::Registration before(&latch, [&] { ++early; });
  {
    const StopLatch::Registration forgotten(&latch, [&] { ++gone; });
  }
  latch.Stop("enough");
  latch.Stop("again");
  const StopLatch::Registration after(&latch, [&] { ++late; });
  EXPECT_EQ(early, 1);
  EXPECT_EQ(late, 1);
  EXPECT_EQ(gone, 0);
}

}  // namespace
}  // namespace torchps
