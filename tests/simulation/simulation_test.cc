#include "tests/simulation/simulation.h"

#include <cstdio>

#include "gtest/gtest.h"

namespace torchps::simulation {
namespace {

// Under a sanitizer each takes ten times as long.
#if defined(TORCHPS_ASAN) || defined(TORCHPS_TSAN)
constexpr uint64_t kSeeds = 200;
#else
constexpr uint64_t kSeeds = 1000;
#endif

// Each planted fault is to be found within so many, which takes no sanitizer's patience: the rarest
// one is found after two hundred.
constexpr uint64_t kSeedsForFault = 1000;

// The first seed that finds the fault; none: kSeedsForFault.
uint64_t FirstSeedThatFinds(Fault fault) {
  for (uint64_t seed = 0; seed < kSeedsForFault; ++seed) {
    RunOptions options;
    options.seed = seed;
    options.fault = fault;
    const Outcome outcome = simulation::Run(options);
    if (outcome.violation.empty()) continue;
    std::printf("seed %lu: %s\n", seed, outcome.violation.c_str());
    return seed;
  }
  return kSeedsForFault;
}

TEST(SimulationTest, NoSeedFindsAViolation) {
  uint64_t events = 0;
  double seconds = 0;
  int worker_deaths = 0;
  int server_deaths = 0;
  uint64_t batch_updates = 0;
  uint64_t early_updates = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    RunOptions options;
    options.seed = seed;
    const Outcome outcome = simulation::Run(options);
    ASSERT_EQ(outcome.violation, "") << "seed " << seed;
    events += outcome.events;
    seconds += outcome.virtual_seconds;
    worker_deaths += outcome.worker_deaths;
    server_deaths += outcome.server_deaths;
    batch_updates += outcome.batch_updates;
    early_updates += outcome.early_updates;
  }
  std::printf("%lu seeds, %lu events, %.0f virtual seconds, %d workers and %d servers died\n",
              kSeeds, events, seconds, worker_deaths, server_deaths);
  EXPECT_GT(worker_deaths, 0);
  EXPECT_GT(server_deaths, 0);
  std::printf("%lu updates of blocks by whole batches, %lu of them early\n", batch_updates,
              early_updates);
  EXPECT_GT(early_updates, 0u);
  EXPECT_GT(batch_updates, early_updates);
}

TEST(SimulationTest, ASeedReplaysBitForBit) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RunOptions options;
    options.seed = seed;
    const Outcome once = simulation::Run(options);
    const Outcome again = simulation::Run(options);
    EXPECT_EQ(once.digest, again.digest) << "seed " << seed;
    EXPECT_EQ(once.events, again.events) << "seed " << seed;
  }
}

TEST(SimulationTest, AnAcknowledgementBeforeThePushIsAppliedIsFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kAcknowledgeEarly), kSeedsForFault);
}

TEST(SimulationTest, APushAppliedTwiceIsFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kSkipLedgerCheck), kSeedsForFault);
}

TEST(SimulationTest, AServerThatComesBackWithoutItsLedgerIsFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kForgetLedgerOnRestore), kSeedsForFault);
}

TEST(SimulationTest, ALedgerWithoutIncarnationsIsFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kIgnoreIncarnation), kSeedsForFault);
}

TEST(SimulationTest, AStaleGradientInARoundIsFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kTakeLateGradient), kSeedsForFault);
}

TEST(SimulationTest, AScheduleThatRunsOutIsFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kScheduleRunsOut), kSeedsForFault);
}

TEST(SimulationTest, SamplesThatAreLostWithALateGradientAreFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kLoseSamples), kSeedsForFault);
}

TEST(SimulationTest, SamplesThatAreLostWithADeadWorkerAreFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kDropLease), kSeedsForFault);
}

TEST(SimulationTest, AGradientOlderThanTheBoundIsFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kTakeOldGradient), kSeedsForFault);
}

TEST(SimulationTest, AnEarlyUpdateThatCountsAsAWholeBatchIsFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kApplyWholeMean), kSeedsForFault);
}

TEST(SimulationTest, AnAcknowledgementOfACollectedPushIsFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kAcknowledgeCollected), kSeedsForFault);
}

TEST(SimulationTest, ASumThatOutlivesARestartIsFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kKeepSum), kSeedsForFault);
}

TEST(SimulationTest, ADeadSlotThatCountsIsFound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kCountDeadSlot), kSeedsForFault);
}

}  // namespace
}  // namespace torchps::simulation
