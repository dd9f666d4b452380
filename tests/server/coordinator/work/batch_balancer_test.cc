#include "torchps/server/coordinator/batch_balancer.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/work/simulated_machine.h"
#include "torchps/common/hash.h"

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
  return training;
}

// Runs a SYNC round: each slot requests a batch and then computes it at the given speed.
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

TEST(BatchBalancerTest, ASlowSlotGetsASmallerBatch) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  std::vector<int> batches;
  int rounds = 0;
  do {
    ASSERT_LT(rounds++, 40);
    batches = Round(balancer, {640, 640, 160});
    EXPECT_EQ(Sum(batches), 96) << "a round has as many samples as without balancing";
  } while (batches[2] > 11);
  // Rounding may move one sample from one slot to another.
  for (int round = 0; round < 10; ++round) {
    batches = Round(balancer, {640, 640, 160});
    EXPECT_THAT(batches,
                ElementsAre(AllOf(Ge(42), Le(43)), AllOf(Ge(42), Le(43)), AllOf(Ge(10), Le(11))));
    EXPECT_EQ(Sum(batches), 96);
  }
}

TEST(BatchBalancerTest, NearlyEqualMachinesKeepEqualBatches) {
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

TEST(BatchBalancerTest, IgnoresASinglePause) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  for (int round = 0; round < 6; ++round) Round(balancer, {640, 640});
  EXPECT_THAT(Round(balancer, {640, 16}), ElementsAre(32, 32)) << "it pauses for 2 s";
  for (int round = 0; round < 6; ++round) {
    EXPECT_THAT(Round(balancer, {640, 640}), ElementsAre(32, 32));
  }
}

TEST(BatchBalancerTest, AShareChangesByAtMostAQuarter) {
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

TEST(BatchBalancerTest, SharesStayBetweenAnEighthAndTwiceTheBatchSize) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  std::vector<int> batches;
  for (int round = 0; round < 40; ++round) batches = Round(balancer, {10000, 10, 10, 10});
  EXPECT_LE(batches[0], 64) << "twice batch_size";
  EXPECT_GE(batches[0], 62) << "or nearly";
  EXPECT_EQ(Sum(batches), 128) << "the other slots get the rest";
  BatchBalancer pair(Training(TrainingSpec::SPEED), /*workers=*/1);
  for (int round = 0; round < 40; ++round) batches = Round(pair, {10000, 1});
  EXPECT_THAT(batches, ElementsAre(60, 4)) << "an eighth of batch_size";
}

TEST(BatchBalancerTest, ASlowSlotNeverGetsASingleSample) {
  TrainingSpec training = Training(TrainingSpec::SPEED);
  training.set_batch_size(4);
  BatchBalancer balancer(training, /*workers=*/2);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THAT(Round(balancer, {1000, 1}), Each(Ge(2)));
  }
  // With a batch size of 1 the equal shares are single samples, which is allowed.
  training.set_batch_size(1);
  BatchBalancer single(training, /*workers=*/2);
  for (int round = 0; round < 50; ++round) EXPECT_THAT(Round(single, {1000, 1}), Each(Ge(1)));
}

TEST(BatchBalancerTest, AJoinerGetsAFullShareAndALeaverReturnsIt) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  for (int round = 0; round < 15; ++round) Round(balancer, {640, 160});
  EXPECT_EQ(balancer.BatchFor(2), 32);
  EXPECT_EQ(balancer.GetLatest(2), 32);
  balancer.Remove(2);
  EXPECT_EQ(balancer.GetLatest(2), 0);
  balancer.Remove(1);
  std::vector<int> batches;
  for (int round = 0; round < 10; ++round) batches = Round(balancer, {640});
  EXPECT_THAT(batches, ElementsAre(32));
}

TEST(BatchBalancerTest, IgnoresZeroTimesAndUnknownSlots) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  Round(balancer, {640, 640});
  for (int i = 0; i < 5; ++i) {
    balancer.Observe(0, 32, 0);
    balancer.Observe(0, 0, 1);
    balancer.Observe(9, 32, 100);
  }
  EXPECT_THAT(Round(balancer, {640, 640}), ElementsAre(32, 32));
}

TEST(BatchBalancerTest, RestoresTheSavedBatches) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/1);
  for (int round = 0; round < 15; ++round) Round(balancer, {640, 160});
  BatchBalancer restored(Training(TrainingSpec::SPEED), /*workers=*/1);
  restored.Restore(balancer.Save());
  EXPECT_EQ(restored.GetLatest(0), balancer.GetLatest(0));
  EXPECT_EQ(restored.GetLatest(1), balancer.GetLatest(1));
  for (int round = 0; round < 10; ++round) {
    const std::vector<int> batches = Round(restored, {640, 160});
    EXPECT_EQ(Sum(batches), 64);
    EXPECT_NEAR(batches[1], 64.0 / 5, 2) << "continues with the old batches";
  }
}

TEST(BatchBalancerTest, SplitsAGlobalBatchFromTheFirstRound) {
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

TEST(BatchBalancerTest, TheGlobalBatchStaysTheSameWhenSlotsJoinAndLeave) {
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

TEST(BatchBalancerTest, SplitsAGlobalBatchAmongLaterJoiners) {
  TrainingSpec training = Training(TrainingSpec::SPEED);
  training.set_global_batch(true);
  BatchBalancer balancer(training, /*workers=*/2);
  Round(balancer, {640, 640});
  balancer.Remove(0);
  balancer.Remove(1);
  EXPECT_THAT(Round(balancer, {640, 640}), ElementsAre(16, 16)) << "a resumed job";
}

// Simulates workers in SYNC rounds.
class Simulation {
 public:
  Simulation(std::vector<SimulatedMachine> machines, uint64_t seed)
      : machines_(std::move(machines)),
        random_(seed),
        balancer_(Training(TrainingSpec::SPEED), static_cast<int>(machines_.size())) {}

  std::vector<SimulatedMachine>& machines() { return machines_; }
  const std::vector<int>& batches() const { return batches_; }

  void Run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      batches_.clear();
      for (size_t slot = 0; slot < machines_.size(); ++slot) {
        batches_.push_back(balancer_.BatchFor(static_cast<SlotId>(slot)));
        balancer_.Observe(static_cast<SlotId>(slot), batches_[slot],
                          machines_[slot].Measure(batches_[slot], random_));
      }
      ASSERT_EQ(Sum(batches_), 32 * machines_.size());
    }
  }
  // Returns the largest batch divided by the smallest one.
  double Spread() const {
    const auto [least, most] = std::minmax_element(batches_.begin(), batches_.end());
    return static_cast<double>(*most) / *least;
  }
  // Returns the slowest worker's step time divided by the fastest one's, without noise.
  double SpreadOfTimes() const {
    double least = 1e9, most = 0;
    for (size_t slot = 0; slot < machines_.size(); ++slot) {
      least = std::min(least, machines_[slot].Seconds(batches_[slot]));
      most = std::max(most, machines_[slot].Seconds(batches_[slot]));
    }
    return most / least;
  }
  double SlowestTime() const {
    double most = 0;
    for (size_t slot = 0; slot < machines_.size(); ++slot) {
      most = std::max(most, machines_[slot].Seconds(batches_[slot]));
    }
    return most;
  }

 private:
  std::vector<SimulatedMachine> machines_;
  uint64_t random_;
  BatchBalancer balancer_;
  std::vector<int> batches_;
};

constexpr uint64_t kSeeds = 10;

TEST(BatchBalancerTest, EqualWorkersKeepEqualSharesDespiteNoise) {
  for (const SimulatedMachine& machine : {TinyModel(), ResNet()}) {
    for (const size_t workers : {2, 3, 8}) {
      double worst = 1;
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        Simulation simulation(std::vector<SimulatedMachine>(workers, machine), seed);
        for (int round = 0; round < 5000; ++round) {
          simulation.Run(1);
          worst = std::max(worst, simulation.Spread());
          ASSERT_LE(simulation.Spread(), 1.1) << "seed " << seed << ", round " << round;
        }
      }
      std::cout << workers << " equal workers, steps of " << machine.Seconds(32)
                << " s: largest share / smallest " << worst << " in 5000 rounds, seeds 1 to "
                << kSeeds << std::endl;
    }
  }
}

TEST(BatchBalancerTest, EqualizesFinishTimesDespiteAFixedCost) {
  // The second worker is four times as slow. In the tiny models mainly the time per sample differs.
  const std::vector<std::vector<SimulatedMachine>> cases = {
      {ResNet(), ResNet(4)},
      {{0.20e-3, 0.1e-3 / 32, 0.3}, {0.20e-3, 0.4e-3 / 32, 0.3}},
      {{0.15e-3, 0.15e-3 / 32, 0.3}, {0.22e-3, 0.6e-3 / 32, 0.3}}};
  for (const std::vector<SimulatedMachine>& machines : cases) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Simulation simulation(machines, seed);
      simulation.Run(1000);
      double sum = 0;
      for (int round = 0; round < 1000; ++round) {
        simulation.Run(1);
        sum += simulation.SpreadOfTimes() / 1000;
      }
      EXPECT_LE(sum, 1.1) << "seed " << seed;
      std::cout << "seed " << seed << ": batches " << simulation.batches()[0] << " and "
                << simulation.batches()[1] << ", slowest time / fastest " << sum << std::endl;
    }
  }
}

// The slow worker's step takes at least 1.13 ms, with the smallest share. An equal share takes 1.2
// ms.
TEST(BatchBalancerTest, StepTimeIsNearOptimalDespiteFixedCost) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Simulation simulation({TinyModel(), TinyModel(4)}, seed);
    simulation.Run(1000);
    for (int round = 0; round < 1000; ++round) {
      simulation.Run(1);
      ASSERT_LE(simulation.SlowestTime(), TinyModel(4).Seconds(4) * 1.1) << "seed " << seed;
    }
  }
}

TEST(BatchBalancerTest, FollowsAChangeOfSpeedInTwentySteps) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Simulation simulation({ResNet(), ResNet()}, seed);
    simulation.Run(100);
    for (const double slowness : {2.0, 1.0, 4.0, 1.0, 1.3}) {
      simulation.machines()[1] = ResNet(slowness);
      simulation.Run(20);
      EXPECT_LE(simulation.SpreadOfTimes(), 1.15) << "seed " << seed << ", " << slowness;
      simulation.Run(80);
      EXPECT_LE(simulation.SpreadOfTimes(), 1.15) << "seed " << seed << ", " << slowness;
    }
  }
}

// The noise of a tiny model hides a change of speed for more steps than that of a ResNet.
TEST(BatchBalancerTest, FollowsAChangeOfSpeedDespiteNoise) {
  const SimulatedMachine fast{0.1e-3, 0.2e-3 / 32, 0.3};
  const SimulatedMachine slow{0.2e-3, 0.8e-3 / 32, 0.3};
  double after_20 = 0, after_100 = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Simulation simulation({fast, fast}, seed);
    simulation.Run(200);
    simulation.machines()[1] = slow;
    simulation.Run(20);
    after_20 += simulation.SpreadOfTimes() / kSeeds;
    simulation.Run(80);
    after_100 += simulation.SpreadOfTimes() / kSeeds;
  }
  std::cout << "slowest time / fastest " << slow.Seconds(32) / fast.Seconds(32) << " at first, "
            << after_20 << " after 20 steps, " << after_100 << " after 100" << std::endl;
  EXPECT_LE(after_20, 1.5);
  EXPECT_LE(after_100, 1.2);
}

TEST(BatchBalancerTest, SharesOfThreeDifferentSpeedsStopChanging) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Simulation simulation({ResNet(), ResNet(1.24), ResNet(1.24 * 1.24)}, seed);
    simulation.Run(100);
    int changes = 0;
    for (int round = 0; round < 2000; ++round) {
      const std::vector<int> before = simulation.batches();
      simulation.Run(1);
      if (simulation.batches() != before) ++changes;
      ASSERT_LE(simulation.SpreadOfTimes(), 1.1) << "seed " << seed << ", round " << round;
    }
    EXPECT_LE(changes, 3) << "seed " << seed;
  }
}

TEST(BatchBalancerTest, MeasuresTheTimeOfAStepNotOfALease) {
  BatchBalancer balancer(Training(TrainingSpec::SPEED), /*workers=*/2);
  // One worker has leases of 4 steps, the other of 2. The worker with the shorter leases must not
  // seem twice as fast.
  for (int round = 0; round < 100; ++round) {
    for (const SlotId slot : {0, 1}) {
      const int batch = balancer.BatchFor(slot);
      const int steps = slot == 0 ? 4 : 2;
      balancer.Observe(slot, steps * batch, steps * ResNet().Seconds(batch));
    }
  }
  EXPECT_EQ(balancer.GetLatest(0), 32);
  EXPECT_EQ(balancer.GetLatest(1), 32);
}

TrainingSpec GlobalBatch(TrainingSpec::Balance balance, int samples) {
  TrainingSpec training = Training(balance);
  training.set_batch_size(samples);
  training.set_global_batch(true);
  return training;
}

TEST(BatchBalancerTest, ASlotThatMissedTwoPlansLosesItsShare) {
  for (const TrainingSpec::Balance balance : {TrainingSpec::EQUAL, TrainingSpec::SPEED}) {
    BatchBalancer balancer(GlobalBatch(balance, 48), /*workers=*/3);
    EXPECT_THAT(Round(balancer, {640, 640, 640}), ElementsAre(16, 16, 16));
    EXPECT_THAT(Round(balancer, {640, 640}), ElementsAre(16, 16));
    EXPECT_THAT(Round(balancer, {640, 640}), ElementsAre(16, 16));
    EXPECT_THAT(Round(balancer, {640, 640}), ElementsAre(24, 24));
    EXPECT_THAT(Round(balancer, {640, 640}), ElementsAre(24, 24));
    EXPECT_EQ(balancer.BatchFor(2), 16);
    EXPECT_THAT(Round(balancer, {640, 640, 640}), ElementsAre(16, 16, 16));
  }
}

TEST(BatchBalancerTest, ARestingSlotReleasesItsShareAtOnce) {
  for (const TrainingSpec::Balance balance : {TrainingSpec::EQUAL, TrainingSpec::SPEED}) {
    BatchBalancer balancer(GlobalBatch(balance, 48), /*workers=*/3);
    Round(balancer, {640, 640, 640});
    EXPECT_EQ(balancer.BatchFor(0), 16);
    balancer.Rest(2);
    balancer.Rest(2);
    balancer.Rest(9);
    EXPECT_EQ(balancer.BatchFor(1), 24) << "slot 0 got a share of this plan";
    EXPECT_THAT(Round(balancer, {640, 640}), ElementsAre(24, 24));
    // Slot 2 comes back after slot 0 got its share of the next plan, and before slot 1 did.
    EXPECT_EQ(balancer.BatchFor(0), 24);
    EXPECT_EQ(balancer.BatchFor(2), 16);
    EXPECT_EQ(balancer.BatchFor(1), 16);
    EXPECT_THAT(Round(balancer, {640, 640, 640}), ElementsAre(16, 16, 16));
  }
}

TEST(BatchBalancerTest, TheOnlySlotThatDoesNotRestGetsTheWholeBatch) {
  BatchBalancer balancer(GlobalBatch(TrainingSpec::SPEED, 48), /*workers=*/2);
  Round(balancer, {640, 640});
  balancer.Rest(0);
  balancer.Rest(1);
  EXPECT_EQ(balancer.BatchFor(1), 48);
  EXPECT_EQ(balancer.BatchFor(0), 24);
  EXPECT_EQ(balancer.BatchFor(1), 24);
}

// For any order of requests, rests and removals, the shares of the active slots add up to the
// batch.
TEST(BatchBalancerTest, PlannedBatchesAddUpUnderRandomSchedules) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    uint64_t random = seed;
    const auto balance = seed % 2 == 0 ? TrainingSpec::EQUAL : TrainingSpec::SPEED;
    BatchBalancer balancer(GlobalBatch(balance, 64), /*workers=*/1);
    // The expected state of an active slot: the number of plans that it missed in a row, and
    // whether it has used its share of the current plan.
    struct Slot {
      int missed = 0;
      bool taken = false;
    };
    std::map<SlotId, Slot> present;
    for (int call = 0; call < 500; ++call) {
      // Some slots request batches more often than others.
      const auto slot = static_cast<SlotId>(UniformBelow(random, 1 + UniformBelow(random, 5)));
      switch (UniformBelow(random, 20)) {
        case 0:
          balancer.Remove(slot);
          present.erase(slot);
          break;
        case 1:
          balancer.Rest(slot);
          present.erase(slot);
          break;
        default: {
          const int batch = balancer.BatchFor(slot);
          if (present.count(slot) > 0 && present[slot].taken) {
            for (auto it = present.begin(); it != present.end();) {
              const bool out = !it->second.taken && ++it->second.missed == 2;
              it->second.taken = false;
              it = out ? present.erase(it) : std::next(it);
            }
          }
          present[slot] = {/*missed=*/0, /*taken=*/true};
          EXPECT_EQ(balancer.Save().at(slot), batch);
          balancer.Observe(slot, batch,
                           ResNet(static_cast<double>(slot + 1)).Measure(batch, random));
        }
      }
      int sum = 0;
      const std::map<SlotId, int> planned = balancer.Save();
      for (const auto& [id, unused] : present) {
        sum += planned.at(id);
        EXPECT_GE(planned.at(id), 2);
      }
      ASSERT_EQ(sum, present.empty() ? 0 : 64) << "seed " << seed << ", call " << call;
    }
  }
}

// For any slots and speeds, a share is at least one sample. It is at most twice batch_size, or
// batch_size if all slots share the batch.
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
          // Servers refuse larger pushes (MostSamplesOfPush).
          const int most = training.global_batch() ? 1 : 2;
          ASSERT_LE(batch, std::max(1, most * training.batch_size())) << "seed " << seed;
          ASSERT_EQ(batch, balancer.GetLatest(slot));
        }
      }
    }
  }
}

}  // namespace
}  // namespace torchps
