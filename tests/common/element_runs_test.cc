#include "torchps/common/element_runs.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Flags = std::vector<bool>;

ElementRuns GetRuns(const Flags& flags) {
  ElementRuns runs;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i]) AppendRun(static_cast<int64_t>(i), static_cast<int64_t>(i) + 1, &runs);
  }
  return runs;
}

Flags RandomFlags(size_t length, uint64_t& random) {
  Flags flags(length);
  bool is_in = false;
  for (size_t i = 0; i < length; ++i) {
    if (UniformBelow(random, 4) == 0) is_in = !is_in;
    flags[i] = is_in;
  }
  return flags;
}

TEST(ElementRunsTest, MergesTouchingRuns) {
  ElementRuns runs;
  AppendRun(2, 5, &runs);
  AppendRun(5, 5, &runs);
  AppendRun(5, 7, &runs);
  AppendRun(8, 9, &runs);
  EXPECT_THAT(runs, ElementsAre(ElementRun{2, 7}, ElementRun{8, 9}));
  EXPECT_TRUE(CheckRuns(runs, 9).ok());
}

TEST(ElementRunsTest, CoversAllRequiresTheWholeRange) {
  EXPECT_TRUE(CoversAll(ElementRuns{{0, 4}}, 4));
  EXPECT_FALSE(CoversAll(ElementRuns{{0, 3}}, 4));
  EXPECT_FALSE(CoversAll(ElementRuns{{1, 4}}, 4));
  EXPECT_FALSE(CoversAll(ElementRuns(), 4));
}

TEST(ElementRunsTest, RunsInBothAndRunsWithinAgreeWithOneFlagPerElement) {
  uint64_t random = 5;
  for (int round = 0; round < 300; ++round) {
    const size_t length = 1 + UniformBelow(random, 40);
    const Flags a = RandomFlags(length, random);
    const Flags b = RandomFlags(length, random);
    Flags both(length);
    for (size_t i = 0; i < length; ++i) both[i] = a[i] && b[i];
    EXPECT_EQ(RunsInBoth(GetRuns(a), GetRuns(b)), GetRuns(both));
    const size_t begin = UniformBelow(random, length);
    const size_t end = begin + UniformBelow(random, length - begin + 1);
    EXPECT_EQ(RunsWithin(GetRuns(a), static_cast<int64_t>(begin), static_cast<int64_t>(end)),
              GetRuns(Flags(a.begin() + static_cast<int64_t>(begin),
                            a.begin() + static_cast<int64_t>(end))));
    EXPECT_TRUE(CheckRuns(GetRuns(a), static_cast<int64_t>(length)).ok());
  }
}

TEST(ElementRunsTest, CheckRunsNamesTheInvalidRun) {
  const auto refused = [](const ElementRuns& runs) {
    const absl::Status status = CheckRuns(runs, 10);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused({{3, 3}}), HasSubstr("a run goes from element 3 to 3"));
  EXPECT_THAT(refused({{-1, 3}}), HasSubstr("from element -1"));
  EXPECT_THAT(refused({{3, 11}}), HasSubstr("ends at 10 at the latest"));
  EXPECT_THAT(refused({{3, 5}, {5, 6}}), HasSubstr("begins at 6 or later"));
  EXPECT_THAT(refused({{3, 5}, {1, 2}}), HasSubstr("begins at 6 or later"));
  EXPECT_THAT(RunsInBoth({}, ElementRuns{{0, 3}}), IsEmpty());
}

}  // namespace
}  // namespace torchps
