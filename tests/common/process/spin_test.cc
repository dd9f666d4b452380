#include <atomic>
#include <thread>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "torchps/common/process/process_limits.h"

namespace torchps {
namespace {

TEST(SpinForTest, RepeatsTheCheckUntilItIsTrue) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "it does not spin on one core";
  int calls = 0;
  EXPECT_TRUE(SpinFor(absl::Hours(1), [&] { return ++calls == 5; }));
  EXPECT_EQ(calls, 5);
}

TEST(SpinForTest, SeesAnotherThreadsChange) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "it does not spin on one core";
  std::atomic<bool> has_come{false};
  std::thread other([&] { has_come = true; });
  EXPECT_TRUE(SpinFor(absl::Hours(1), [&] { return has_come.load(); }));
  other.join();
}

TEST(SpinForTest, GivesUpAfterTheTime) {
  EXPECT_FALSE(SpinFor(absl::Microseconds(10), [] { return false; }));
}

TEST(SpinForTest, ReturnsFalseAtOnceForZeroTime) {
  EXPECT_FALSE(SpinFor(absl::ZeroDuration(), [] { return true; }));
}

}  // namespace
}  // namespace torchps
