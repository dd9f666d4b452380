#include <cstdint>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "torchps/common/clock.h"

namespace torchps {
namespace {

constexpr Backoff::Options kOptions = {absl::Milliseconds(100), absl::Seconds(1)};

TEST(BackoffTest, DoublesUpToTheMaximumWithJitter) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Backoff backoff(kOptions, seed);
    for (const int milliseconds : {100, 200, 400, 800, 1000, 1000}) {
      const absl::Duration delay = backoff.Next();
      EXPECT_GT(delay, absl::Milliseconds(milliseconds) * 0.75 - absl::Nanoseconds(1));
      EXPECT_LE(delay, absl::Milliseconds(milliseconds));
    }
  }
}

TEST(BackoffTest, StartsAgainAfterASuccess) {
  Backoff backoff(kOptions, 1);
  for (int i = 0; i < 10; ++i) backoff.Next();
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Milliseconds(100));
  EXPECT_GT(backoff.Next(), absl::Milliseconds(149));
}

TEST(BackoffTest, DelaysDependOnTheSeed) {
  Backoff first(kOptions, 1);
  Backoff same(kOptions, 1);
  Backoff other(kOptions, 2);
  const absl::Duration delay = first.Next();
  EXPECT_EQ(same.Next(), delay);
  EXPECT_NE(other.Next(), delay);
}

}  // namespace
}  // namespace torchps
