#include <gtest/gtest.h>

#include "tools/run_plan/fault_plan.h"

namespace torchps {
namespace {

using Words = std::map<int, std::vector<std::string>>;

constexpr int kWorkers = 3;

absl::StatusOr<Words> Parse(const std::vector<std::string>& arguments) {
  const auto flags = FlagTable("psctl run", HandicapFlags()).Parse(arguments);
  if (!flags.ok()) return flags.status();
  return ParseHandicaps(*flags, kWorkers);
}

std::string Complaint(const std::string& argument) {
  return std::string(Parse({argument}).status().message());
}

TEST(HandicapsTest, PassesFlagsToTheNamedSlot) {
  const absl::StatusOr<Words> words =
      Parse({"--slow=0:8", "--slow=2:1.5", "--pace=2:50", "--pause=1:2:10"});
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_EQ(*words,
            (Words{{0, {"--slow=8"}}, {1, {"--pause=2:10"}}, {2, {"--slow=1.5", "--pace=50"}}}));
  EXPECT_EQ(*Parse({}), Words());
}

TEST(HandicapsTest, RejectsMalformedHandicaps) {
  const std::string slot = " with a slot from 0 to 2";
  const std::string slow = ": expected SLOT:FACTOR with a factor of at least 1";
  EXPECT_EQ(Complaint("--slow=3:2"), "--slow=3:2: expected SLOT:FACTOR" + slot);
  EXPECT_EQ(Complaint("--slow=8"), "--slow=8: expected SLOT:FACTOR" + slot);
  EXPECT_EQ(Complaint("--slow=-1:2"), "--slow=-1:2: expected SLOT:FACTOR" + slot);
  EXPECT_EQ(Complaint("--slow=1"), "--slow=1" + slow);
  EXPECT_EQ(Complaint("--slow=1:0.5"), "--slow=1:0.5" + slow);
  EXPECT_EQ(Complaint("--slow=1:nan"), "--slow=1:nan" + slow);

  EXPECT_EQ(Complaint("--pace=3:50"), "--pace=3:50: expected SLOT:MS" + slot);
  EXPECT_EQ(Complaint("--pace=1:0"), "--pace=1:0: expected SLOT:MS with milliseconds above 0");
  EXPECT_EQ(Complaint("--pace=1:50ms"),
            "--pace=1:50ms: expected SLOT:MS with milliseconds above 0");

  const std::string pause = ": expected SLOT:FOR:EVERY with seconds, FOR above 0 and below EVERY";
  EXPECT_EQ(Complaint("--pause=3:2:10"), "--pause=3:2:10: expected SLOT:FOR:EVERY" + slot);
  EXPECT_EQ(Complaint("--pause=1:2"), "--pause=1:2" + pause);
  EXPECT_EQ(Complaint("--pause=1:10:2"), "--pause=1:10:2" + pause);
  EXPECT_EQ(Complaint("--pause=1:0:2"), "--pause=1:0:2" + pause);
  EXPECT_EQ(Complaint("--pause=1:1:2:3"), "--pause=1:1:2:3" + pause);
}

TEST(HandicapsTest, RejectsTheSameSlotTwiceInOneFlag) {
  EXPECT_EQ(Parse({"--slow=1:2", "--slow=1:3"}).status().message(), "--slow names slot 1 twice");
  EXPECT_EQ(Parse({"--pause=1:1:2", "--pause=1:1:3"}).status().message(),
            "--pause names slot 1 twice");
}

}  // namespace
}  // namespace torchps
