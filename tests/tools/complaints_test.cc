#include "tools/complaints.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ComplaintsTest, ALineIsTakenOnceWhenItHasWaited) {
  Complaints complaints;
  complaints.Add(absl::Seconds(1), "ps_worker: no such file");
  complaints.Add(absl::Seconds(3), "ps_server: no space");
  EXPECT_THAT(complaints.Take(absl::Milliseconds(999)), IsEmpty());
  EXPECT_THAT(complaints.Take(absl::Seconds(1)), ElementsAre("no such file"));
  EXPECT_TRUE(complaints.waiting());
  EXPECT_THAT(complaints.Take(absl::InfiniteDuration()), ElementsAre("no space"));
  EXPECT_FALSE(complaints.waiting());
}

TEST(ComplaintsTest, TheLastWordsAreWhatWasNotShownOrElseTheLastLine) {
  Complaints complaints;
  EXPECT_THAT(complaints.LastWords(), IsEmpty());
  complaints.Add(absl::Seconds(1), "a");
  complaints.Add(absl::Seconds(2), "b");
  complaints.Add(absl::Seconds(3), "c");
  complaints.Take(absl::Seconds(1));
  EXPECT_THAT(complaints.LastWords(), ElementsAre("b", "c"));
  complaints.Take(absl::Seconds(3));
  EXPECT_THAT(complaints.LastWords(), ElementsAre("c"));
}

TEST(ComplaintsTest, ANextLifeHasNotSaidAnything) {
  Complaints complaints;
  complaints.Add(absl::Seconds(1), "a");
  complaints.Clear();
  EXPECT_FALSE(complaints.waiting());
  EXPECT_THAT(complaints.LastWords(), IsEmpty());
}

}  // namespace
}  // namespace torchps
