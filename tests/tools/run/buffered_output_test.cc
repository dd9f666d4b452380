#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/tools/run/run_part.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BufferedOutputTest, ReleasesEachLineAfterTheDelayOnlyOnce) {
  BufferedOutput held;
  held.Add(absl::Seconds(1), "ps_worker: no such file");
  held.Add(absl::Seconds(3), "ps_server: no space");
  EXPECT_THAT(held.Take(absl::Milliseconds(999)), IsEmpty());
  EXPECT_THAT(held.Take(absl::Seconds(1)), ElementsAre("no such file"));
  EXPECT_TRUE(held.waiting());
  EXPECT_THAT(held.Take(absl::InfiniteDuration()), ElementsAre("no space"));
  EXPECT_FALSE(held.waiting());
}

TEST(BufferedOutputTest, LastWordsAreTheUnshownLinesElseTheLastLine) {
  BufferedOutput held;
  EXPECT_THAT(held.LastWords(), IsEmpty());
  held.Add(absl::Seconds(1), "a");
  held.Add(absl::Seconds(2), "b");
  held.Add(absl::Seconds(3), "c");
  held.Take(absl::Seconds(1));
  EXPECT_THAT(held.LastWords(), ElementsAre("b", "c"));
  held.Take(absl::Seconds(3));
  EXPECT_THAT(held.LastWords(), ElementsAre("c"));
}

TEST(BufferedOutputTest, RestartClearsTheLastWords) {
  BufferedOutput held;
  held.Add(absl::Seconds(1), "a");
  held.Clear();
  EXPECT_FALSE(held.waiting());
  EXPECT_THAT(held.LastWords(), IsEmpty());
}

}  // namespace
}  // namespace torchps
