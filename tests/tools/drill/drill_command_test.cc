#include "torchps/tools/drill/drill_command.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/testing/eventually.h"
#include "tests/testing/manual_clock.h"
#include "tests/tools/testing.h"
#include "torchps/tools/drill/drill.h"

namespace torchps {
namespace {

class PlanDrillTest : public testing::Test {
 protected:
  PlanDrillTest() {
    std::filesystem::create_directory(folder_.path("tools"));
    folder_.WriteScript("tools/ps_server", "");
    folder_.WriteScript("tools/ps_worker", "");
    job_ = folder_.WriteFile("job.textproto",
                             "name: 'tiny' workers: 3 model { name: 'mlp' } "
                             "optimizer { sgd {} learning_rate: 0.1 }");
  }
  absl::StatusOr<DrillOptions> Plan(std::vector<std::string> arguments) {
    arguments.push_back("--job=" + job_);
    const auto flags = FlagTable("psctl drill", DrillFlags()).Parse(arguments);
    EXPECT_TRUE(flags.ok()) << flags.status();
    return PlanDrill(*flags, folder_.path("tools"));
  }
  std::string Complaint(std::vector<std::string> arguments) {
    return std::string(Plan(std::move(arguments)).status().message());
  }

  const TestFolder folder_;
  std::string job_;
};

TEST_F(PlanDrillTest, PlansARunWithAFaultSchedule) {
  const auto plan = Plan({"--servers=2", "--kill=server:every=5s", "--kill=worker.1:at=3s",
                          "--freeze=worker:every=8s:for=2s", "--seconds=30", "--seed=7"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->faults.rules.size(), 3u);
  EXPECT_EQ(plan->faults.servers, 2);
  EXPECT_EQ(plan->faults.workers, 3);
  EXPECT_EQ(plan->faults.length, absl::Seconds(30));
  EXPECT_EQ(plan->faults.seed, 7u);
  EXPECT_GT(plan->run.restarts.most, 1000000);
}

TEST_F(PlanDrillTest, WithStagesFaultsHitSingleProcessesOfWorkers) {
  const auto plan = Plan({"--stages=2", "--kill=worker.1.1:at=3s", "--kill=worker:every=2s"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->faults.stages, 2);
  EXPECT_EQ(plan->faults.rules[0].stage, 1);
  EXPECT_EQ(plan->faults.rules[1].stage, -1) << "drawn";
  EXPECT_NE(Complaint({"--stages=2", "--kill=worker.1.2:at=3s"}).find("there is no worker.1.2"),
            std::string::npos);
  EXPECT_EQ(Plan({"--kill=worker:every=2s"})->faults.stages, 0);
  DrillFigures figures;
  figures.worker_kills = 3;
  figures.stage_kills = {{0, 1}, {1, 2}};
  EXPECT_NE(DrillText(figures, absl::ZeroDuration(), std::nullopt, 3)
                .find("\nkilled processes of workers: 1 of stage 0, 2 of stage 1\n"),
            std::string::npos);
}

TEST_F(PlanDrillTest, NetworkFaultsDisableSharedMemory) {
  const auto quiet = Plan({"--kill=worker:every=3s"});
  ASSERT_TRUE(quiet.ok()) << quiet.status();
  EXPECT_TRUE(quiet->run.launch.set.empty());
  const auto plan = Plan(
      {"--partition=halves:every=9s", "--reset=worker:every=1s", "--half_open=server:every=5s"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->run.launch.set, (std::vector<std::string>{"wire.shared_memory=false"}));
  EXPECT_EQ(plan->faults.rules.size(), 3u);
}

TEST_F(PlanDrillTest, SlowDiskAffectsASingleServer) {
  const auto plan = Plan({"--servers=3", "--slow_disk=server.1:20:100ms"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->run.launch.slow_disks, (std::map<int, std::string>{{1, "20:100ms"}}));
  const auto drawn = Plan({"--servers=3", "--slow_disk=server:5", "--seed=4"});
  ASSERT_TRUE(drawn.ok()) << drawn.status();
  EXPECT_EQ(drawn->run.launch.slow_disks.size(), 1u);
  EXPECT_EQ(drawn->run.launch.slow_disks.begin()->second, "5");
}

TEST_F(PlanDrillTest, DiskLossGivesEachServerItsOwnDirectory) {
  const auto plan = Plan({"--servers=2", "--lose_disk=server:every=5s",
                          "--set=durability.level=LOG", "--set=durability.copies=1"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->faults.rules.size(), 1u);
  EXPECT_TRUE(plan->run.launch.disks_apart);
  const auto quiet = Plan({"--servers=2", "--kill=server:every=5s"});
  ASSERT_TRUE(quiet.ok()) << quiet.status();
  EXPECT_FALSE(quiet->run.launch.disks_apart);
}

TEST_F(PlanDrillTest, RejectsDiskLossWithoutCopies) {
  EXPECT_NE(Complaint({"--servers=2", "--lose_disk=server:at=1s"})
                .find("--lose_disk: this job keeps no copies (durability.copies is 0)"),
            std::string::npos);
  EXPECT_NE(Complaint({"--servers=1", "--lose_disk=server:at=1s", "--set=durability.copies=1"})
                .find("--lose_disk: this job has one server"),
            std::string::npos);
  EXPECT_NE(Complaint({"--servers=2", "--lose_disk=worker:at=1s", "--set=durability.copies=1"})
                .find("only servers keep files on a disk"),
            std::string::npos);
}

TEST_F(PlanDrillTest, RejectsUnsupportedDrills) {
  EXPECT_NE(Complaint({"--slow_disk=worker:5"}).find("expected 'server', or 'server.0' to"),
            std::string::npos);
  EXPECT_NE(Complaint({"--servers=2", "--slow_disk=server.2:5"}).find("to 'server.1' first"),
            std::string::npos);
  EXPECT_NE(Complaint({"--slow_disk=server:fast"}).find("'fast' is not MB, MB:SYNC or MB:reads"),
            std::string::npos);
  EXPECT_NE(Complaint({}).find("a drill needs a fault"), std::string::npos);
  EXPECT_NE(Complaint({"--kill=worker.3:at=1s"}).find("there is no worker.3"), std::string::npos);
  EXPECT_NE(Complaint({"--kill=server:at=1s", "--set=durability.level=NONE"})
                .find("its servers cannot recover"),
            std::string::npos);
}

TEST(RecoveryWatch, MeasuresOutageUntilPushesAreAppliedAgain) {
  ManualClock clock;
  const absl::Duration began = clock.Now();
  Mutex mutex;
  bool applies = false;
  int looks = 0;
  // Answers like a server that applies pushes after the test sets `applies`.
  class Client final : public ClusterClient {
   public:
    Client(Mutex* mutex, bool* applies, int* looks)
        : mutex_(mutex), applies_(applies), looks_(looks) {}
    const std::vector<std::string>& addresses() const override { return addresses_; }
    absl::StatusOr<JobStatus> GetJobStatus(bool, absl::Duration) override { return JobStatus(); }
    absl::StatusOr<ServerStatus> GetServerStatus(int, absl::Duration) override {
      MutexLock lock(mutex_);
      ++*looks_;
      ServerStatus status;
      if (*applies_) status.mutable_verdicts()->set_accepted(1);
      return status;
    }
    absl::StatusOr<CheckpointStatus> TakeCheckpoint(absl::Duration) override {
      return CheckpointStatus();
    }
    absl::Status Shutdown(int, absl::string_view, absl::Duration) override {
      return absl::OkStatus();
    }

   private:
    const std::vector<std::string> addresses_;
    Mutex* const mutex_;
    bool* const applies_;
    int* const looks_;
  };
  RecoveryWatch watch(
      [&](std::vector<std::string>) { return std::make_unique<Client>(&mutex, &applies, &looks); },
      clock);
  // The server returned at its first start, not after a death. So there is no outage to report.
  watch.OnReturn(1, "127.0.0.1:1", clock.Now());
  EXPECT_TRUE(watch.recoveries().empty());

  clock.Advance(absl::Seconds(1));
  watch.OnDeath(1, clock.Now());
  clock.Advance(absl::Milliseconds(100));
  watch.OnReturn(1, "127.0.0.1:1", clock.Now());
  EXPECT_TRUE(Eventually([&] {
    MutexLock lock(&mutex);
    return looks > 2;
  }));
  EXPECT_FALSE(watch.recoveries()[0].applies.has_value());
  clock.Advance(absl::Milliseconds(400));
  {
    MutexLock lock(&mutex);
    applies = true;
  }
  ASSERT_TRUE(Eventually([&] { return watch.recoveries()[0].applies.has_value(); }));
  const RecoveryWatch::Recovery recovery = watch.recoveries()[0];
  EXPECT_EQ(recovery.listens, absl::Milliseconds(100));
  EXPECT_EQ(recovery.applies, absl::Milliseconds(500));

  DrillFigures figures;
  figures.server_kills = 1;
  figures.worker_freezes = 2;
  figures.recoveries = {recovery};
  figures.faults["kill"] = {1, absl::Milliseconds(700)};
  figures.faults["partition"] = {2, std::nullopt};
  figures.longest_stall = absl::Milliseconds(1500);
  Report report;
  report.mutable_rolled_back()->set_blocks(1234);
  report.mutable_rolled_back()->set_pushes(7);
  Report::Reconciles& checks = *report.mutable_reconciles();
  report.set_finished(true);
  checks.set_all(true);
  checks.mutable_samples_used()->set_holds(true);
  checks.mutable_samples_used()->set_expected(2000);
  checks.mutable_samples_used()->set_actual(2000);
  MetricValue& accuracy = *report.mutable_result()->add_metrics();
  accuracy.set_name("accuracy");
  accuracy.set_value(0.75);
  EXPECT_EQ(
      DrillText(figures, began, report, 0),
      "\nkilled: 1 server, 0 workers; frozen: 0 servers, 2 workers\n"
      "  server 1 died after 1.00 s: listens again after 0.10 s, first push applied after 0.50 s\n"
      "slowest recovery, from death to the first applied push: 0.50 s\n"
      "rolled back: 1,234 blocks of 7 steps\n"
      "final test accuracy 75.00 %\n"
      "--kill: 1 time, longest stall of other workers: 0.70 s\n"
      "--partition: 2 times, longest stall of other workers: none\n"
      "verdict: consistency check passed; samples lost 0, doubled 0; longest stall of any "
      "worker, hit or not: 1.50 s; acknowledged pushes lost 7\n");
  EXPECT_NE(DrillText(figures, began, report, 5)
                .find("verdict: the run FAILED with exit code 5; consistency check passed;"),
            std::string::npos);
  report.set_finished(false);
  EXPECT_NE(DrillText(figures, began, report, 0).find("consistency check passed so far;"),
            std::string::npos);
  Report::Check& kept = *checks.mutable_kept_gradients();
  kept.set_holds(false);
  kept.set_expected(40);
  kept.set_actual(38);
  EXPECT_NE(DrillText(figures, began, report, 0).find("acknowledged pushes lost 9\n"),
            std::string::npos);
  kept.clear_holds();
  report.clear_rolled_back();
  EXPECT_NE(DrillText(figures, began, report, 0).find("acknowledged pushes lost -\n"),
            std::string::npos);
  figures.disks_lost = 2;
  EXPECT_NE(DrillText(figures, began, report, 0).find("workers\ndisks lost: 2\n  server 1"),
            std::string::npos);
  figures.disks_spared = 1;
  EXPECT_NE(DrillText(figures, began, report, 0)
                .find("disks lost: 2, skipped because copies were incomplete: 1\n"),
            std::string::npos);
  checks.mutable_samples_used()->set_actual(1993);
  checks.set_all(false);
  EXPECT_NE(DrillText(figures, began, report, 0)
                .find("verdict: consistency check FAILED; samples lost 7, doubled 0;"),
            std::string::npos);
  checks.mutable_samples_used()->clear_holds();
  EXPECT_NE(DrillText(figures, began, report, 0).find("samples lost -, doubled -;"),
            std::string::npos);
}

}  // namespace
}  // namespace torchps
