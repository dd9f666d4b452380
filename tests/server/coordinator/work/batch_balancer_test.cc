#include "server/coordinator/work/batch_balancer.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/split_mix64.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;
using ::testing::UnorderedElementsAre;

TrainingSpec Training(TrainingSpec::Balance balance) {
  TrainingSpec training;
  training.set_batch_size(32);
  training.set_balance(balance);
  training.set_balance_floor(0.125);
  training.set_balance_ceiling(2);
  return training;
}

// A round of SYNC: each slot takes its batch, and then computes it at its speed.
std::vector<int> Round(BatchBalancer& balancer, const std::vector<double>& speeds) {
  std::vector<int> batches;
  for (size_t slot = 0; slot < speeds.size(); ++slot) {
    batches.push_back(balancer.BatchFor(static_cast<SlotId>(slot)));
  }
  for (size_t slot = 0; slot < speeds.size(); ++slot) {
    balancer.Observe(static_cast<SlotId>(slot), batches[slot], batches[slot] / speeds[slot]);
  }
  return batches;
}

int Sum(const std::vector<int>& batches) {
  int sum = 0;
  for (const int batch : batches) sum += batch;
  return sum;
}

TEST(BatchBalancerTest, WithoutBalanceEachSlotTakesBatchSize) {
  BatchBalancer balancer(Training(TrainingSpec::EQUAL), /*workers=*/1);
  for (int round = 0; round < 10; ++round) {
    EXPECT_THAT(Round(balancer, {400, 100}), ElementsAre(32, 32));
  }
}

TEST(BatchBalancerTest, ASlowSlotTakesAsMuchAsItComputesInTheOthersTime) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  std::vector<int> batches;
  int rounds = 0;
  do {
    ASSERT_LT(rounds++, 20);
    batches = Round(balancer, {640, 640, 160});
    EXPECT_EQ(Sum(batches), 96) << "a round has as many samples as without balancing";
  } while (batches[2] > 11);
  // A third of two samples is somebody's.
  for (int round = 0; round < 10; ++round) {
    batches = Round(balancer, {640, 640, 160});
    EXPECT_THAT(batches,
                ElementsAre(AllOf(Ge(42), Le(43)), AllOf(Ge(42), Le(43)), AllOf(Ge(10), Le(11))));
    EXPECT_EQ(Sum(batches), 96);
  }
}

TEST(BatchBalancerTest, MachinesThatAreNearlyEqualKeepEqualBatches) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  uint64_t random = 7;
  for (int round = 0; round < 200; ++round) {
    std::vector<double> speeds;
    for (int slot = 0; slot < 4; ++slot) {
      speeds.push_back(640 + static_cast<double>(UniformBelow(random, 60)));
    }
    EXPECT_THAT(Round(balancer, speeds), Each(32)) << "seed 7, round " << round;
  }
}

TEST(BatchBalancerTest, APauseIsNoChangeOfSpeed) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  for (int round = 0; round < 6; ++round) Round(balancer, {640, 640});
  EXPECT_THAT(Round(balancer, {640, 16}), ElementsAre(32, 32)) << "it pauses for 2 s";
  for (int round = 0; round < 6; ++round) {
    EXPECT_THAT(Round(balancer, {640, 640}), ElementsAre(32, 32));
  }
}

TEST(BatchBalancerTest, AShareMovesByAQuarterAtMost) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  std::vector<int> before = Round(balancer, {1000, 100});
  for (int round = 0; round < 10; ++round) {
    const std::vector<int> now = Round(balancer, {1000, 100});
    for (int slot = 0; slot < 2; ++slot) {
      EXPECT_LE(now[slot], before[slot] * 1.25 + 1);
      EXPECT_GE(now[slot], before[slot] * 0.75 - 1);
    }
    before = now;
  }
}

TEST(BatchBalancerTest, SharesKeepToFloorAndCeiling) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  std::vector<int> batches;
  for (int round = 0; round < 40; ++round) batches = Round(balancer, {10000, 10, 10, 10});
  EXPECT_LE(batches[0], 64) << "twice batch_size";
  EXPECT_GE(batches[0], 62) << "or nearly so";
  EXPECT_EQ(Sum(batches), 128) << "the others have to take the rest";
  BatchBalancer pair(Training(TrainingSpec::SPEED), /*workers=*/1);
  for (int round = 0; round < 40; ++round) batches = Round(pair, {10000, 1});
  EXPECT_THAT(batches, ElementsAre(60, 4)) << "an eighth of batch_size";
}

TEST(BatchBalancerTest, NobodyGetsASingleSampleForBeingSlow) {
  TrainingSpec training = Training(TrainingSpec::SPEED);
  training.set_batch_size(4);
  BatchBalancer balancer(training, /*workers=*/2);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THAT(Round(balancer, {1000, 1}), Each(Ge(2)));
  }
  // Where equal shares are smaller, they are what there is.
  training.set_batch_size(1);
  BatchBalancer single(training, /*workers=*/2);
  for (int round = 0; round < 50; ++round) EXPECT_THAT(Round(single, {1000, 1}), Each(Ge(1)));
}

TEST(BatchBalancerTest, WhoComesTakesAWholeShareAndWhoGoesLeavesItToTheOthers) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  for (int round = 0; round < 15; ++round) Round(balancer, {640, 160});
  EXPECT_EQ(balancer.BatchFor(2), 32);
  EXPECT_EQ(balancer.LatestOf(2), 32);
  balancer.Remove(2);
  EXPECT_EQ(balancer.LatestOf(2), 0);
  balancer.Remove(1);
  std::vector<int> batches;
  for (int round = 0; round < 10; ++round) batches = Round(balancer, {640});
  EXPECT_THAT(batches, ElementsAre(32));
}

TEST(BatchBalancerTest, WhatTookNoTimeOrIsOfAStrangerSaysNothing) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  Round(balancer, {640, 640});
  for (int i = 0; i < 5; ++i) {
    balancer.Observe(0, 32, 0);
    balancer.Observe(0, 0, 1);
    balancer.Observe(9, 32, 100);
  }
  EXPECT_THAT(Round(balancer, {640, 640}), ElementsAre(32, 32));
}

TEST(BatchBalancerTest, GoesOnWithTheBatchesThatItHad) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  for (int round = 0; round < 15; ++round) Round(balancer, {640, 160});
  BatchBalancer restored(Training(TrainingSpec::SPEED), /*workers=*/1);
  restored.Restore(balancer.Save());
  EXPECT_EQ(restored.LatestOf(0), balancer.LatestOf(0));
  EXPECT_EQ(restored.LatestOf(1), balancer.LatestOf(1));
  for (int round = 0; round < 10; ++round) {
    const std::vector<int> batches = Round(restored, {640, 160});
    EXPECT_EQ(Sum(batches), 64);
    EXPECT_NEAR(batches[1], 64.0 / 5, 2) << "it does not begin anew";
  }
}

TEST(BatchBalancerTest, AGlobalBatchIsSharedOutFromTheFirstRoundOn) {
  for (const TrainingSpec::Balance balance : {TrainingSpec::EQUAL, TrainingSpec::SPEED}) {
    TrainingSpec training = Training(balance);
    training.set_global_batch(true);
    BatchBalancer balancer(training, /*workers=*/3);
    EXPECT_THAT(Round(balancer, {640, 640, 640}), UnorderedElementsAre(10, 11, 11));
    std::vector<int> batches;
    for (int round = 0; round < 20; ++round) {
      batches = Round(balancer, {640, 640, 160});
      EXPECT_EQ(Sum(batches), 32) << "one process's batch, round " << round;
    }
    if (balance == TrainingSpec::SPEED) {
      EXPECT_LE(batches[2], 4);
    } else {
      EXPECT_GE(batches[2], 10);
    }
  }
}

TEST(BatchBalancerTest, AGlobalBatchStaysWhatItIsWhoeverComesAndGoes) {
  for (const TrainingSpec::Balance balance : {TrainingSpec::EQUAL, TrainingSpec::SPEED}) {
    TrainingSpec training = Training(balance);
    training.set_global_batch(true);
    BatchBalancer balancer(training, /*workers=*/2);
    EXPECT_THAT(Round(balancer, {640, 640}), ElementsAre(16, 16));
    for (int round = 0; round < 10; ++round) Round(balancer, {640, 640, 640, 640});
    EXPECT_THAT(Round(balancer, {640, 640, 640, 640}), ElementsAre(8, 8, 8, 8));
    balancer.Remove(1);
    balancer.Remove(2);
    balancer.Remove(3);
    for (int round = 0; round < 10; ++round) Round(balancer, {640});
    EXPECT_THAT(Round(balancer, {640}), ElementsAre(32));
  }
}

TEST(BatchBalancerTest, WhenAllHaveGoneAGlobalBatchIsSharedOutAmongThoseThatComeNext) {
  TrainingSpec training = Training(TrainingSpec::SPEED);
  training.set_global_batch(true);
  BatchBalancer balancer(training, /*workers=*/2);
  Round(balancer, {640, 640});
  balancer.Remove(0);
  balancer.Remove(1);
  EXPECT_THAT(Round(balancer, {640, 640}), ElementsAre(16, 16)) << "a job that was resumed";
}

// Whoever comes, goes and is how fast: a batch is at least one sample and at most the ceiling, and
// no round has more samples than one batch_size a slot, but where floors ask for it.
TEST(BatchBalancerTest, BatchesStayWithinTheirBoundsUnderRandomSchedules) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    uint64_t random = seed;
    TrainingSpec training = Training(TrainingSpec::SPEED);
    training.set_batch_size(1 + static_cast<int>(UniformBelow(random, 64)));
    training.set_global_batch(UniformBelow(random, 2) == 0);
    BatchBalancer balancer(training, /*workers=*/1);
    for (int call = 0; call < 200; ++call) {
      const auto slot = static_cast<SlotId>(UniformBelow(random, 5));
      switch (UniformBelow(random, 6)) {
        case 0:
          balancer.Remove(slot);
          break;
        case 1:
          balancer.Observe(slot, 1 + UniformBelow(random, 100),
                           static_cast<double>(1 + UniformBelow(random, 1000)) / 1000);
          break;
        default: {
          const int batch = balancer.BatchFor(slot);
          ASSERT_GE(batch, 1) << "seed " << seed;
          ASSERT_LE(batch, std::max(1, 2 * training.batch_size())) << "seed " << seed;
          ASSERT_EQ(batch, balancer.LatestOf(slot));
        }
      }
    }
  }
}

}  // namespace
}  // namespace torchps
