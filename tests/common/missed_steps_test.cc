#include "torchps/common/missed_steps.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;

TEST(MissedStepsTest, CountsTheMissedStepsOfEachElement) {
  MissedSteps missed;
  EXPECT_TRUE(missed.empty());
  missed.Add(ElementRuns{{2, 6}});
  missed.Add(ElementRuns{{0, 3}, {8, 9}});
  EXPECT_THAT(missed.runs(), ElementsAre(MissedRun{0, 2, 1}, MissedRun{2, 3, 2}, MissedRun{3, 6, 1},
                                         MissedRun{8, 9, 1}));
}

TEST(MissedStepsTest, RandomRunsGiveTheSameCountsAsAPlainArray) {
  constexpr int64_t kLength = 24;
  uint64_t random = 3;
  for (int round = 0; round < 100; ++round) {
    MissedSteps missed;
    std::vector<int64_t> expected(kLength);
    for (int step = 1; step <= 8; ++step) {
      ElementRuns absent;
      for (int64_t i = 0; i < kLength; ++i) {
        if (UniformBelow(random, 3) == 0) AppendRun(i, i + 1, &absent);
      }
      for (const ElementRun& run : absent) {
        for (int64_t i = run.begin; i < run.end; ++i) ++expected[i];
      }
      missed.Add(absent);
      ASSERT_TRUE(MissedSteps::Check(missed.runs(), kLength, step).ok());
    }
    std::vector<int64_t> found(kLength);
    for (const MissedRun& run : missed.runs()) {
      for (int64_t i = run.begin; i < run.end; ++i) found[i] = run.steps;
    }
    EXPECT_EQ(found, expected);
    const MissedSteps copy(missed.runs());
    EXPECT_TRUE(copy.runs() == missed.runs());
  }
}

TEST(MissedStepsTest, RejectsInvalidRuns) {
  const auto refused = [](const std::vector<MissedRun>& runs) {
    return absl::IsInvalidArgument(MissedSteps::Check(runs, /*length=*/10, /*updates=*/4));
  };
  EXPECT_FALSE(refused({{0, 2, 1}, {2, 10, 4}}));
  EXPECT_TRUE(refused({{0, 2, 1}, {2, 3, 1}})) << "one run, cut";
  EXPECT_TRUE(refused({{0, 2, 0}}));
  EXPECT_TRUE(refused({{0, 2, 5}})) << "more than the updates so far";
  EXPECT_TRUE(refused({{0, 11, 1}}));
  EXPECT_TRUE(refused({{4, 6, 1}, {2, 3, 1}}));
  EXPECT_TRUE(refused({{-1, 3, 1}}));
}

}  // namespace
}  // namespace torchps
