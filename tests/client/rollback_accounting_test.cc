#include "torchps/client/rollback_accounting.h"

#include <set>
#include <utility>

#include "gtest/gtest.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

TEST(RollbackAccountingTest, CountsUpdatesAboveTheRestoredStep) {
  RollbackAccounting accounting(2);
  for (Step step = 1; step <= 10; ++step) {
    accounting.Applied(0, step, false);
    if (step != 7) accounting.Applied(1, step, false);  // block 1 rejected step 7
  }
  const RollbackAccounting::Lost first = accounting.RollBack(0, 8);
  EXPECT_EQ(first.blocks, 2u);
  EXPECT_EQ(first.pushes, 2u);
  EXPECT_EQ(first.first_step, 9);
  const RollbackAccounting::Lost second = accounting.RollBack(1, 5);
  EXPECT_EQ(second.blocks, 4u) << "6, 8, 9, 10";
  EXPECT_EQ(second.pushes, 2u) << "9 and 10 were lost in part before";
  const RollbackAccounting::Lost all = accounting.TakeLost();
  EXPECT_EQ(all.blocks, 6u);
  EXPECT_EQ(all.pushes, 4u);
  EXPECT_EQ(all.first_step, 6);
  EXPECT_EQ(accounting.TakeLost().blocks, 0u);
}

TEST(RollbackAccountingTest, CountsEachLossOnce) {
  RollbackAccounting accounting(1);
  for (Step step = 1; step <= 5; ++step) accounting.Applied(0, step, false);
  EXPECT_EQ(accounting.RollBack(0, 3).blocks, 2u);
  EXPECT_EQ(accounting.RollBack(0, 3).blocks, 0u);
  accounting.Applied(0, 6, false);
  EXPECT_EQ(accounting.RollBack(0, 2).blocks, 2u) << "3 and 6";
}

TEST(RollbackAccountingTest, CountsALateReplyOfTheServersFormerIncarnation) {
  RollbackAccounting accounting(1);
  accounting.Applied(0, 1, false);
  EXPECT_EQ(accounting.RollBack(0, 2).blocks, 0u);
  accounting.Applied(0, 2, /*by_former_incarnation=*/true);
  EXPECT_EQ(accounting.TakeLost().blocks, 0u);
  accounting.Applied(0, 3, /*by_former_incarnation=*/true);
  EXPECT_EQ(accounting.TakeLost().blocks, 1u);
  EXPECT_EQ(accounting.RollBack(0, 0).blocks, 2u);
}

TEST(StepSetTest, MatchesAPlainSet) {
  const uint64_t seed = 7;
  SCOPED_TRACE(seed);
  uint64_t random = seed;
  StepSet runs;
  std::set<Step> plain;
  for (int event = 0; event < 5000; ++event) {
    if (UniformBelow(random, 50) == 0) {
      const Step above = static_cast<Step>(UniformBelow(random, 200));
      std::set<Step> taken;
      for (const StepSet::Run& run : runs.TakeAbove(above)) {
        ASSERT_LE(run.first, run.last);
        for (Step step = run.first; step <= run.last; ++step) taken.insert(step);
      }
      const std::set<Step> expected(plain.upper_bound(above), plain.end());
      ASSERT_EQ(taken, expected);
      plain.erase(plain.upper_bound(above), plain.end());
      continue;
    }
    const Step first = 1 + static_cast<Step>(UniformBelow(random, 200));
    const Step last = first + static_cast<Step>(UniformBelow(random, 4));
    uint64_t added = 0;
    for (Step step = first; step <= last; ++step) added += plain.insert(step).second ? 1 : 0;
    ASSERT_EQ(runs.Add({first, last}), added);
  }
}

TEST(StepSetTest, DropsTheOldestRunsAtTheLimit) {
  StepSet runs;
  for (Step step = 1; step <= 3 * static_cast<Step>(StepSet::kMaxRuns); step += 2) {
    runs.Add({step, step});
  }
  EXPECT_EQ(runs.TakeAbove(0).size(), StepSet::kMaxRuns);
}

}  // namespace
}  // namespace torchps
