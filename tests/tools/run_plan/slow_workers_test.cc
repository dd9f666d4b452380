#include <gtest/gtest.h>

#include "torchps/tools/run_plan/fault_plan.h"

namespace torchps {
namespace {

using Factors = std::map<int, std::string>;

constexpr int kWorkers = 3;

absl::StatusOr<Factors> Parse(const std::vector<std::string>& arguments) {
  const auto flags = FlagTable("psctl run", {{"slow", "SLOT:FACTOR", "", true}}).Parse(arguments);
  if (!flags.ok()) return flags.status();
  return ParseSlowWorkers(*flags, kWorkers);
}

std::string Complaint(const std::string& argument) {
  return std::string(Parse({argument}).status().message());
}

TEST(SlowWorkersTest, MapsSlotsToFactors) {
  EXPECT_EQ(*Parse({"--slow=0:8", "--slow=2:1.5"}), (Factors{{0, "8"}, {2, "1.5"}}));
  EXPECT_EQ(*Parse({}), Factors());
}

TEST(SlowWorkersTest, RejectsMalformedValues) {
  const std::string slot = " with a slot from 0 to 2";
  const std::string slow = ": expected SLOT:FACTOR with a factor of at least 1";
  EXPECT_EQ(Complaint("--slow=3:2"), "--slow=3:2: expected SLOT:FACTOR" + slot);
  EXPECT_EQ(Complaint("--slow=8"), "--slow=8: expected SLOT:FACTOR" + slot);
  EXPECT_EQ(Complaint("--slow=-1:2"), "--slow=-1:2: expected SLOT:FACTOR" + slot);
  EXPECT_EQ(Complaint("--slow=1"), "--slow=1" + slow);
  EXPECT_EQ(Complaint("--slow=1:0.5"), "--slow=1:0.5" + slow);
  EXPECT_EQ(Complaint("--slow=1:nan"), "--slow=1:nan" + slow);
}

TEST(SlowWorkersTest, RejectsTheSameSlotTwice) {
  EXPECT_EQ(Parse({"--slow=1:2", "--slow=1:3"}).status().message(), "--slow names slot 1 twice");
}

}  // namespace
}  // namespace torchps
