#include "common/process/ask.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(AskForTest, AsksUntilItHasCome) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "on one core nobody asks";
  int asked = 0;
  EXPECT_TRUE(AskFor(absl::Hours(1), [&] { return ++asked == 5; }));
  EXPECT_EQ(asked, 5);
}

TEST(AskForTest, HearsWhatAnotherThreadSays) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "on one core nobody asks";
  std::atomic<bool> has_come{false};
  std::thread other([&] { has_come = true; });
  EXPECT_TRUE(AskFor(absl::Hours(1), [&] { return has_come.load(); }));
  other.join();
}

TEST(AskForTest, AsksAgainAfterANap) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "on one core nobody asks";
  int asked = 0;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(AskFor(
      absl::Hours(1), [&] { return ++asked == 5; }, Meanwhile::kNap));
  EXPECT_EQ(asked, 5);
  EXPECT_GE(absl::FromChrono(std::chrono::steady_clock::now() - begin), 4 * kNap);
}

TEST(AskForTest, GivesUpInTime) {
  EXPECT_FALSE(AskFor(absl::Microseconds(10), [] { return false; }));
  EXPECT_FALSE(AskFor(
      absl::Microseconds(10), [] { return false; }, Meanwhile::kNap));
}

TEST(AskForTest, DoesNotAskWithoutTime) {
  EXPECT_FALSE(AskFor(absl::ZeroDuration(), [] { return true; }));
}

}  // namespace
}  // namespace torchps
