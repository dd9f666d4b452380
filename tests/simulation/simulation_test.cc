#include "tests/simulation/simulation.h"

#include <cstdio>

#include "gtest/gtest.h"

namespace torchps::simulation {
namespace {

// A build with a sanitizer is about ten times slower.
#if defined(TORCHPS_ASAN) || defined(TORCHPS_TSAN)
constexpr uint64_t kSeeds = 200;
#else
constexpr uint64_t kSeeds = 1000;
#endif

// Each planted fault must be found within this many seeds. The rarest fault needs about 200 seeds,
// so this is fast enough with a sanitizer, too.
constexpr uint64_t kSeedsForFault = 1000;

// Returns the first seed that finds the fault; kSeedsForFault if there is none.
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

TEST(SimulationTest, FindsNoViolationWithoutAPlantedFault) {
  uint64_t events = 0;
  double seconds = 0;
  int worker_deaths = 0;
  int server_deaths = 0;
  int lost_disks = 0;
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
    lost_disks += outcome.lost_disks;
    batch_updates += outcome.batch_updates;
    early_updates += outcome.early_updates;
  }
  std::printf(
      "%lu seeds, %lu events, %.0f virtual seconds, %d workers and %d servers died, %d disks were "
      "lost\n",
      kSeeds, events, seconds, worker_deaths, server_deaths, lost_disks);
  EXPECT_GT(worker_deaths, 0);
  EXPECT_GT(server_deaths, 0);
  EXPECT_GT(lost_disks, 0);
  std::printf("%lu updates of blocks by whole batches, %lu of them early\n", batch_updates,
              early_updates);
  EXPECT_GT(early_updates, 0u);
  EXPECT_GT(batch_updates, early_updates);
}

TEST(SimulationTest, ASeedAlwaysGivesTheSameEvents) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RunOptions options;
    options.seed = seed;
    const Outcome once = simulation::Run(options);
    const Outcome again = simulation::Run(options);
    EXPECT_EQ(once.digest, again.digest) << "seed " << seed;
    EXPECT_EQ(once.events, again.events) << "seed " << seed;
  }
}

TEST(SimulationTest, FindsAPushAcknowledgedBeforeItIsApplied) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kAcknowledgeEarly), kSeedsForFault);
}

TEST(SimulationTest, FindsAPushAppliedTwice) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kSkipLedgerCheck), kSeedsForFault);
}

TEST(SimulationTest, FindsALedgerLostInARestart) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kForgetLedgerOnRestore), kSeedsForFault);
}

TEST(SimulationTest, FindsALedgerWithoutIncarnations) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kIgnoreIncarnation), kSeedsForFault);
}

TEST(SimulationTest, FindsALateGradientAddedToALaterRound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kTakeLateGradient), kSeedsForFault);
}

TEST(SimulationTest, FindsAReportedJobProgressThatIsTooHigh) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kScheduleRunsOut), kSeedsForFault);
}

TEST(SimulationTest, FindsSamplesOfARefusedGradientCountedAsUsed) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kLoseSamples), kSeedsForFault);
}

TEST(SimulationTest, FindsSamplesOfADeadWorkerCountedAsUsed) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kDropLease), kSeedsForFault);
}

TEST(SimulationTest, FindsAnAppliedGradientOlderThanTheBound) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kTakeOldGradient), kSeedsForFault);
}

TEST(SimulationTest, FindsAnEarlyUpdateThatAppliesTheWholeMean) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kApplyWholeMean), kSeedsForFault);
}

TEST(SimulationTest, FindsAPushAcknowledgedBeforeTheUpdateOfItsBatch) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kAcknowledgeCollected), kSeedsForFault);
}

TEST(SimulationTest, FindsGradientsThatSurviveARestartWithoutLedgerEntries) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kKeepSum), kSeedsForFault);
}

TEST(SimulationTest, FindsACopyThatIsConfirmedAndNotStored) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kConfirmLostCopy), kSeedsForFault);
}

TEST(SimulationTest, FindsADeadSlotThatBlocksOtherSlots) {
  EXPECT_LT(FirstSeedThatFinds(Fault::kCountDeadSlot), kSeedsForFault);
}

}  // namespace
}  // namespace torchps::simulation
