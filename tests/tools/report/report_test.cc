#include "torchps/tools/report/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/tools/testing.h"
#include "torchps/common/process/version.h"
#include "torchps/tools/report/report_checks.h"
#include "torchps/tools/report/report_command.h"
#include "torchps/tools/report/report_text.h"

namespace torchps {
namespace {

struct Statuses {
  JobStatus job = FromTestdata<JobStatus>("job_status.textproto");
  std::vector<ServerAnswer> servers = {
      {"127.0.0.1:4711", FromTestdata<ServerStatus>("server_0.textproto")},
      {"127.0.0.1:4712", FromTestdata<ServerStatus>("server_1.textproto")}};

  Report Build() const { return BuildReport(job, servers); }
};

// Returns whether the check `name` holds, or nullopt if the report does not decide it.
std::optional<bool> Holds(const Report& report, const std::string& name) {
  for (const auto& [found, check] : GetChecks(report)) {
    if (found != name) continue;
    return check.has_holds() ? std::make_optional(check.holds()) : std::nullopt;
  }
  ADD_FAILURE() << "no check is named " << name;
  return std::nullopt;
}

// To update the golden files after an intended change: run this test with
// --test_env=UPDATE_GOLDEN=1 and --spawn_strategy=local, review the difference, and commit it.
void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = "tests/tools/testdata/" + name;
  if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  EXPECT_EQ(text, ReadWholeFile(path));
}

TEST(ReportTest, JsonMatchesTheGoldenFile) {
  Report report = Statuses().Build();
  EXPECT_EQ(report.version(), ReleaseVersion());
  // The golden file has a fixed version and no commit, so that a new release does not change it.
  report.set_version("1.2.3");
  report.clear_commit();
  ExpectGolden("report.json", ReportJson(report));
}

TEST(ReportTest, TheTextShowsAtMost31OfManyEpochs) {
  Report report = Statuses().Build();
  report.clear_epochs();
  report.mutable_result()->set_best_epoch(101);
  for (int epoch = 1; epoch <= 400; ++epoch) {
    EpochAccounting& accounting = *report.add_epochs()->mutable_accounting();
    accounting.set_epoch(epoch);
    accounting.set_used(1000000 + epoch);
  }
  const std::string text = ReportText(report);
  int rows = 0;
  for (int epoch = 1; epoch <= 400; ++epoch) {
    rows += text.find(absl::StrCat(" 1,000,",
                                   epoch < 10    ? "00"
                                   : epoch < 100 ? "0"
                                                 : "",
                                   epoch)) != std::string::npos;
  }
  EXPECT_EQ(rows, 31) << text;
  for (const char* shown : {" 1,000,001", " 1,000,101", " 1,000,400"}) {
    EXPECT_NE(text.find(shown), std::string::npos) << shown;
  }
  EXPECT_NE(text.find("one in 14 of 400 epochs, the best and the last; the JSON contains all\n"),
            std::string::npos);
}

TEST(ReportTest, TextMatchesTheGoldenFile) {
  ExpectGolden("report.txt", ReportText(Statuses().Build()));
}

TEST(ReportTest, ANonFiniteModelIsReportedWithAdvice) {
  Statuses statuses;
  CheckpointStatus& last = *statuses.job.mutable_checkpoint();
  last.set_enabled(true);
  last.set_number(3);
  EXPECT_EQ(ReportText(statuses.Build()).find("not finite"), std::string::npos);
  last.set_nonfinite_blocks(2);
  EXPECT_NE(ReportText(statuses.Build())
                .find("the model is not finite: 2 blocks hold infinite or NaN values; to go "
                      "back, stop the job, move the non-finite checkpoints away"),
            std::string::npos);
}

TEST(ReportTest, ShowsTheColumnOfRepeatedStepsIfAny) {
  Statuses statuses;
  EXPECT_EQ(ReportText(statuses.Build()).find("begun anew"), std::string::npos);
  statuses.job.mutable_slot(1)->mutable_figures()->set_stopped_steps(17);
  const Report report = statuses.Build();
  EXPECT_EQ(report.slots(1).stopped_steps(), 17);
  EXPECT_NE(ReportText(report).find("begun anew"), std::string::npos);
  EXPECT_NE(ReportText(report).find(" 17 "), std::string::npos);
}

TEST(ReportTest, ShowsTheColumnOfOverflowedStepsIfAny) {
  Statuses statuses;
  EXPECT_FALSE(statuses.Build().slots(1).has_overflows());
  EXPECT_EQ(ReportText(statuses.Build()).find("overflows"), std::string::npos);
  statuses.job.mutable_slot(1)->mutable_figures()->set_overflows(5);
  const Report report = statuses.Build();
  EXPECT_EQ(report.slots(1).overflows(), 5);
  EXPECT_NE(ReportText(report).find("overflows"), std::string::npos);
}

TEST(ReportTest, ListsTheDevicesOfAMultiDeviceSlot) {
  Statuses statuses;
  statuses.job.mutable_slot(1)->clear_member();
  EXPECT_EQ(ReportJson(statuses.Build()).find("\"members\""), std::string::npos);
  for (int i = 0; i < 2; ++i) {
    ReplicaMember& member = *statuses.job.mutable_slot(1)->add_member();
    member.set_device("cpu");
    member.set_stage(-1);
    member.set_parameters(50890);
    member.set_model_bytes(407120);
  }
  const Report report = statuses.Build();
  EXPECT_EQ(report.slots(0).members_size(), 0);
  EXPECT_EQ(report.slots(1).members_size(), 2);
  EXPECT_NE(ReportText(report).find("2 devices"), std::string::npos) << ReportText(report);
  EXPECT_NE(ReportText(report).find("replica, 398 KiB\n"), std::string::npos) << ReportText(report);
  EXPECT_NE(ReportJson(report).find("\"model_bytes\": 407120"), std::string::npos)
      << ReportJson(report);
}

TEST(ReportTest, WithoutAccuracyTheLowestLossIsBest) {
  Statuses statuses;
  const double losses[] = {0.3, 0.2, 0.4};
  statuses.job.clear_evaluation();
  for (int epoch = 1; epoch <= 3; ++epoch) {
    EvaluationResult& result = *statuses.job.add_evaluation();
    result.set_epoch(epoch);
    result.set_samples(100);
    result.set_loss(losses[epoch - 1]);
  }
  const Report report = statuses.Build();
  EXPECT_EQ(report.result().loss(), 0.4);
  EXPECT_EQ(report.result().best_epoch(), 2);
  EXPECT_EQ(report.result().best_loss(), 0.2);
  EXPECT_NE(ReportJson(report).find("\"accuracy\": null"), std::string::npos);
  const std::string text = ReportText(report);
  EXPECT_EQ(text.find("accuracy 0"), std::string::npos) << text;
  EXPECT_EQ(text.find("digits-mlp finished: test loss 0.4 after 3 epochs, best after epoch 2: "
                      "test loss 0.2\n"),
            0u)
      << text;
}

TEST(ReportTest, WithoutATestSetOmitsTheResult) {
  Statuses statuses;
  for (EvaluationResult& result : *statuses.job.mutable_evaluation()) {
    result.clear_metric();
    result.set_samples(0);
    result.set_loss(0);
  }
  const Report report = statuses.Build();
  EXPECT_FALSE(report.has_result());
  EXPECT_FALSE(report.epochs(0).has_test());
  EXPECT_EQ(ReportText(report).find("digits-mlp finished\n"), 0u) << ReportText(report);
  // The report does not mention lost evaluations either.
  EXPECT_EQ(Holds(report, "evaluations"), true) << ReportText(report);
}

TEST(ReportTest, ANonFiniteLossIsReportedAsAFailure) {
  Statuses statuses;
  statuses.job.mutable_evaluation(1)->set_loss(std::numeric_limits<double>::infinity());
  const Report report = statuses.Build();
  EXPECT_FALSE(report.finished());
  EXPECT_EQ(report.result().best_epoch(), 1) << "the loss of epoch 1 was finite";
  EXPECT_EQ(ReportText(report).find("digits-mlp FAILED: the test loss after epoch 2 is inf; a "
                                    "smaller optimizer.learning_rate or training.clip_norm may "
                                    "help\n"),
            0u)
      << ReportText(report);
}

TEST(ReportTest, NonFiniteLossesAreNotShownAsZero) {
  Statuses statuses;
  StepFigures& figures = *statuses.job.mutable_slot(0)->mutable_figures();
  figures.set_samples(4);
  figures.set_samples_without_loss(2);
  figures.set_loss_sum(6);
  EXPECT_EQ(statuses.Build().slots(0).mean_loss(), 3);
  figures.set_samples_without_loss(4);
  EXPECT_TRUE(std::isnan(statuses.Build().slots(0).mean_loss()));
  statuses.job.mutable_epoch(0)->set_train_loss(std::numeric_limits<double>::quiet_NaN());
  const Report report = statuses.Build();
  EXPECT_NE(ReportText(report).find(" nan "), std::string::npos) << ReportText(report);
  EXPECT_NE(ReportJson(report).find("\"train_loss\": null"), std::string::npos);
}

TEST(ReportTest, CleanRunPassesTheConsistencyCheck) {
  const Report report = Statuses().Build();
  EXPECT_TRUE(report.reconciles().all());
  for (const char* name :
       {"samples_used", "slot_samples", "evaluations", "pushed_blocks", "acknowledged_blocks",
        "lag_counted", "min_version", "max_version", "clock_gap", "kept_gradients"}) {
    EXPECT_EQ(Holds(report, name), std::optional<bool>(true)) << name;
  }
  EXPECT_EQ(Holds(report, "lag"), std::optional<bool>(true));
  EXPECT_EQ(report.reconciles().lag().note(), "no bound");
  EXPECT_EQ(report.reconciles().lag().expected(), -1);
  EXPECT_FALSE(report.reconciles().has_updates());
}

TEST(ReportTest, DetectsALostSample) {
  Statuses statuses;
  statuses.job.mutable_epoch(1)->set_used(999);
  const Report report = statuses.Build();
  EXPECT_EQ(Holds(report, "samples_used"), std::optional<bool>(false));
  EXPECT_FALSE(report.reconciles().all());
  EXPECT_NE(ReportText(report).find("samples_used: expected 2,000, found 1,999"),
            std::string::npos);
}

TEST(ReportTest, DetectsALostGradient) {
  Statuses statuses;
  statuses.servers[1].status->mutable_verdicts()->set_accepted(39);
  const Report report = statuses.Build();
  EXPECT_EQ(Holds(report, "pushed_blocks"), std::optional<bool>(false));
  EXPECT_EQ(Holds(report, "acknowledged_blocks"), std::optional<bool>(false));
}

TEST(ReportTest, DetectsAMissingGradientAfterAnyFault) {
  Statuses statuses;
  statuses.job.mutable_job()->mutable_durability()->set_level(DurabilitySpec::LOG);
  statuses.job.mutable_slot(1)->set_state(SlotAccounting::EXPIRED);
  statuses.servers[1].status->mutable_durability()->set_restored_checkpoint(3);
  const auto holds = [&] { return Holds(statuses.Build(), "kept_gradients"); };
  EXPECT_EQ(holds(), std::optional<bool>(true));
  EXPECT_NE(ReportText(statuses.Build()).find("no acknowledged gradient is missing"),
            std::string::npos);
  // A process that died has pushed more gradients than it reported.
  (*statuses.servers[1].status->mutable_least_applied())[1] = 18;
  EXPECT_EQ(holds(), std::optional<bool>(true));
  (*statuses.servers[1].status->mutable_least_applied())[1] = 15;
  EXPECT_EQ(holds(), std::optional<bool>(false));
  StepFigures& figures = *statuses.job.mutable_slot(1)->mutable_figures();
  figures.set_rejected_pushes(1);
  EXPECT_EQ(holds(), std::optional<bool>(true)) << "the worker was told";
  figures.set_rejected_pushes(0);
  figures.set_rolled_back_pushes(1);
  EXPECT_EQ(holds(), std::nullopt) << "slot 1 may not have reported all rollbacks";
  statuses.job.mutable_slot(1)->set_state(SlotAccounting::FINISHED);
  EXPECT_EQ(holds(), std::optional<bool>(true));
  statuses.servers[1].status->mutable_least_applied()->erase(0);
  EXPECT_EQ(holds(), std::optional<bool>(false)) << "a block has no gradient of slot 0";
  statuses.job.mutable_job()->mutable_durability()->set_level(DurabilitySpec::CHECKPOINT);
  EXPECT_EQ(holds(), std::nullopt) << "workers may report the rollback later";
}

TEST(ReportTest, ARestartedServerWithoutTheJobIsNotJudged) {
  Statuses statuses;
  statuses.servers[1].status->Clear();
  EXPECT_EQ(Holds(statuses.Build(), "kept_gradients"), std::nullopt);
}

TEST(ReportTest, DetectsAGradientAppliedTwice) {
  Statuses statuses;
  statuses.servers[0].status->set_max_version(41);
  EXPECT_EQ(Holds(statuses.Build(), "max_version"), std::optional<bool>(false));
}

TEST(ReportTest, DetectsAReadBeyondTheStalenessBound) {
  Statuses statuses;
  statuses.servers[0].status->mutable_clock_gap()->set_max(5);
  EXPECT_EQ(Holds(statuses.Build(), "clock_gap"), std::optional<bool>(false));
}

TEST(ReportTest, DetectsAGradientBeyondTheLagBound) {
  Statuses statuses;
  LagContract& lag = *statuses.job.mutable_job()->mutable_consistency()->mutable_lag();
  lag.set_policy(LagContract::REJECT);
  EXPECT_EQ(Holds(statuses.Build(), "lag"), std::optional<bool>(true));
  lag.set_max_lag(6);
  EXPECT_EQ(Holds(statuses.Build(), "lag"), std::optional<bool>(false));
}

TEST(ReportTest, AnInterruptedRunSkipsTheFinalChecks) {
  Statuses statuses;
  statuses.job.set_phase(JobStatus::RUNNING);
  statuses.job.mutable_epoch(1)->set_used(600);
  const Report report = statuses.Build();
  EXPECT_FALSE(report.finished());
  EXPECT_EQ(Holds(report, "samples_used"), std::nullopt);
  EXPECT_TRUE(report.reconciles().all());
}

TEST(ReportTest, DetectsARoundMissedByABlock) {
  Statuses statuses;
  statuses.job.mutable_job()->mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  EXPECT_EQ(Holds(statuses.Build(), "rounds"), std::optional<bool>(true));
  EXPECT_EQ(ReportText(statuses.Build()).find("lag of applied"), std::string::npos);
  EXPECT_EQ(Holds(statuses.Build(), "lag"), std::optional<bool>(true));
  EXPECT_EQ(Holds(statuses.Build(), "max_version"), std::nullopt);
  statuses.servers[1].status->set_min_version(39);
  EXPECT_EQ(Holds(statuses.Build(), "rounds"), std::optional<bool>(false));
}

// Statuses of a whole-batch job with two workers: 20 updates of three blocks.
struct WholeBatches : Statuses {
  WholeBatches() {
    ConsistencySpec& consistency = *job.mutable_job()->mutable_consistency();
    consistency.set_apply(ConsistencySpec::WHOLE_BATCH);
    consistency.set_staleness_bound(1);
    job.mutable_slot(0)->mutable_figures()->set_pushes(25);
    job.mutable_slot(0)->mutable_figures()->set_rejected_pushes(1);
    for (ServerAnswer& answer : servers) {
      ServerStatus& status = *answer.status;
      const auto blocks = static_cast<int64_t>(status.blocks());
      status.set_min_version(20);
      status.set_max_version(20);
      status.set_block_updates(20 * status.blocks());
      status.set_early_block_updates(status.blocks());
      status.mutable_verdicts()->set_rejected(status.blocks());
      status.mutable_verdicts()->set_acknowledged(41 * status.blocks());
      SetLags({38 * blocks, 2 * blocks}, &status);
    }
    SetWaits(0.125, 0.055, 0.0625, servers[0].status->mutable_slot(0));
    SetWaits(0.1, 0.03, 0.0625, servers[1].status->mutable_slot(0));
    SetWaits(0.05, 0.05, 0.1, servers[1].status->mutable_slot(1));
  }

  static void SetLags(const std::vector<int64_t>& buckets, ServerStatus* status) {
    Histogram& lag = *status->mutable_lag();
    lag.Clear();
    for (size_t age = 0; age < buckets.size(); ++age) {
      lag.add_bucket(buckets[age]);
      lag.set_count(lag.count() + buckets[age]);
      if (buckets[age] > 0) lag.set_max(static_cast<int64_t>(age));
    }
  }
  static void SetWaits(double all, double longest, double usual_step, SlotStatus* slot) {
    slot->set_push_wait_seconds(all);
    slot->set_longest_push_wait_seconds(longest);
    slot->set_usual_step_seconds(usual_step);
  }
};

TEST(WholeBatchReportTest, ReportsUpdatesAgesAndWaits) {
  const Report report = WholeBatches().Build();
  const std::string text = ReportText(report);
  EXPECT_NE(text.find("2 servers, asynchronous, staleness at most 1 update\n"), std::string::npos);
  EXPECT_NE(
      text.find("\n\n"
                "20 updates of a whole batch, 1 early; 40 gradients: 38 on the newest "
                "values, 2 one update older, 0 older (bound 1)\n"
                "1 refused, its samples issued again; workers waited 10 % of the time, 55 ms "
                "at most (0.9 of a step)\n"
                "\nconsistency check passed: samples, pushes and versions agree (9 checks)\n"),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find("steps ahead"), std::string::npos);
  EXPECT_EQ(text.find("▇"), std::string::npos);
  const std::string json = ReportJson(report);
  EXPECT_NE(json.find("\"apply\": \"WHOLE_BATCH\""), std::string::npos) << json;
  EXPECT_NE(json.find("  \"updates\": {\n"
                      "    \"made\": 20,\n"
                      "    \"early\": 1,\n"
                      "    \"by_age\": [\n      38,\n      2\n    ],\n"
                      "    \"refused\": 1,\n"
                      "    \"longest_wait_seconds\": 0.055,\n"
                      "    \"longest_wait_steps\": 0.88\n"
                      "  }"),
            std::string::npos)
      << json;
}

TEST(WholeBatchReportTest, ShowsRareEventsOnASingleBlock) {
  WholeBatches statuses;
  for (ServerAnswer& answer : statuses.servers) {
    answer.status->clear_early_block_updates();
    answer.status->mutable_verdicts()->clear_rejected();
  }
  WholeBatches::SetLags({80}, &*statuses.servers[0].status);
  WholeBatches::SetLags({38, 1, 1}, &*statuses.servers[1].status);
  statuses.job.mutable_job()->mutable_consistency()->set_staleness_bound(-1);
  const auto text = [&] { return ReportText(statuses.Build()); };
  EXPECT_NE(text().find("20 updates of a whole batch, 0 early; 40 gradients: 38 on the newest "
                        "values, 1 one update older, 1 older (no bound)\n0 refused; workers "),
            std::string::npos)
      << text();
  EXPECT_NE(text().find("age of applied gradients, in updates: mean "), std::string::npos);
  statuses.servers[1].status->set_early_block_updates(1);
  statuses.servers[1].status->mutable_verdicts()->set_rejected(5);
  EXPECT_NE(text().find("20 updates of a whole batch, 1 early;"), std::string::npos) << text();
  EXPECT_NE(text().find("\n2 refused, their samples issued again; "), std::string::npos);
  EXPECT_NE(text().find(", 55 ms at most (0.9 of a step)\n"), std::string::npos);
  WholeBatches::SetWaits(0.2, 0.2, 0.0625, statuses.servers[0].status->mutable_slot(1));
  EXPECT_NE(text().find(", 200 ms at most (3.2 steps)\n"), std::string::npos) << text();
}

TEST(WholeBatchReportTest, ReportsThatAServersCountsStartAtItsRestart) {
  WholeBatches statuses;
  statuses.servers[1].status->mutable_durability()->set_restored_checkpoint(3);
  statuses.servers[1].status->set_block_updates(4);
  const Report report = statuses.Build();
  EXPECT_NE(ReportText(report).find(
                "(0.9 of a step)\n"
                "server 1 restarted; it has counted gradients and waits only since then\n"),
            std::string::npos)
      << ReportText(report);
  EXPECT_EQ(Holds(report, "updates"), std::nullopt);
}

TEST(WholeBatchReportTest, CountsUpdateWaitsAsWaitingNotPushing) {
  Statuses statuses;
  WholeBatches whole;
  for (size_t i = 0; i < statuses.servers.size(); ++i) {
    *statuses.servers[i].status->mutable_slot() = whole.servers[i].status->slot();
  }
  const auto pushed_and_waited = [](const Report& report) {
    const Report::Times& seconds = report.slots(0).seconds();
    return std::make_pair(seconds.push(), seconds.wait());
  };
  EXPECT_EQ(pushed_and_waited(statuses.Build()), std::make_pair(0.25, 0.5)) << "with EACH_PUSH";
  EXPECT_EQ(pushed_and_waited(whole.Build()), std::make_pair(0.125, 0.625));
  statuses.job.mutable_job()->mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  EXPECT_EQ(pushed_and_waited(statuses.Build()), std::make_pair(0.125, 0.625));
  // Simulates a worker that died before it reported the time of its pushes. So the servers counted
  // more waiting time than the workers' total time of pushes.
  whole.servers[0].status->mutable_slot(0)->set_push_wait_seconds(100);
  EXPECT_EQ(pushed_and_waited(whole.Build()), std::make_pair(0.0, 0.75));
}

TEST(WholeBatchReportTest, ReportsWhyPushesWereNotJudged) {
  WholeBatches statuses;
  statuses.job.mutable_slot(1)->set_state(SlotAccounting::EXPIRED);
  EXPECT_NE(ReportText(statuses.Build())
                .find("checks agree; no acknowledged gradient is missing; further pushes were not "
                      "judged: a worker ended early, so the figures of its last steps are lost\n"),
            std::string::npos);
}

TEST(WholeBatchReportTest, DetectsAGradientOlderThanTheBound) {
  WholeBatches statuses;
  EXPECT_EQ(Holds(statuses.Build(), "lag"), std::optional<bool>(true));
  EXPECT_EQ(statuses.Build().reconciles().lag().expected(), 1);
  EXPECT_EQ(Holds(statuses.Build(), "clock_gap"), std::nullopt);
  statuses.servers[0].status->mutable_lag()->set_max(2);
  EXPECT_EQ(Holds(statuses.Build(), "lag"), std::optional<bool>(false));
  statuses.servers[1].status = absl::UnavailableError("connection refused");
  EXPECT_EQ(Holds(statuses.Build(), "lag"), std::optional<bool>(false));
  statuses.servers[0].status->mutable_lag()->set_max(1);
  EXPECT_EQ(Holds(statuses.Build(), "lag"), std::nullopt);
  statuses.job.mutable_job()->mutable_consistency()->set_staleness_bound(-1);
  EXPECT_EQ(Holds(statuses.Build(), "lag"), std::optional<bool>(true));
}

TEST(WholeBatchReportTest, DetectsDifferingVersionAndUpdateCounts) {
  WholeBatches statuses;
  EXPECT_EQ(Holds(statuses.Build(), "updates"), std::optional<bool>(true));
  EXPECT_EQ(Holds(statuses.Build(), "min_version"), std::nullopt);
  EXPECT_EQ(Holds(statuses.Build(), "rounds"), std::nullopt);
  statuses.servers[0].status->set_block_updates(39);
  EXPECT_EQ(Holds(statuses.Build(), "updates"), std::optional<bool>(false));
  // The two blocks of server 0 now differ by one update.
  statuses.servers[0].status->set_min_version(19);
  EXPECT_EQ(Holds(statuses.Build(), "updates"), std::optional<bool>(true));
  statuses.servers[0].status->set_block_updates(41);
  EXPECT_EQ(Holds(statuses.Build(), "updates"), std::optional<bool>(false));
  statuses.job.set_phase(JobStatus::RUNNING);
  EXPECT_EQ(Holds(statuses.Build(), "updates"), std::nullopt);
}

TEST(ReportTest, ReportsAMissingServerAndSkipsItsChecks) {
  Statuses statuses;
  statuses.servers[1].status = absl::UnavailableError("connection refused");
  const Report report = statuses.Build();
  EXPECT_EQ(report.servers(1).error(), "connection refused");
  EXPECT_EQ(Holds(report, "pushed_blocks"), std::nullopt);
  EXPECT_NE(ReportText(report).find("server 1 did not answer: connection refused"),
            std::string::npos);
}

TEST(ReportTest, ADeadWorkersMissingFiguresAreNotLostGradients) {
  Statuses statuses;
  statuses.job.mutable_slot(1)->set_state(SlotAccounting::EXPIRED);
  statuses.job.mutable_slot(1)->mutable_figures()->set_pushes(15);
  statuses.job.mutable_epoch(0)->set_reissued(50);
  const Report report = statuses.Build();
  EXPECT_EQ(Holds(report, "pushed_blocks"), std::nullopt);
  EXPECT_TRUE(report.reconciles().all());
  EXPECT_NE(ReportText(report).find("re-issued"), std::string::npos);
}

TEST(ReportTest, AcceptsOnlyReportedRollbacks) {
  Statuses statuses;
  // After the restart, server 1 lost the last two pushes of slot 0 and the last push of slot 1.
  StepFigures& first = *statuses.job.mutable_slot(0)->mutable_figures();
  first.set_rolled_back_pushes(2);
  first.set_rolled_back_blocks(2);
  statuses.job.mutable_slot(1)->mutable_figures()->set_rolled_back_pushes(1);
  statuses.job.mutable_slot(1)->mutable_figures()->set_rolled_back_blocks(1);
  ServerStatus& server = *statuses.servers[1].status;
  server.mutable_durability()->set_restored_checkpoint(3);
  server.set_min_version(37);
  server.set_max_version(37);
  server.mutable_verdicts()->set_accepted(5);
  server.mutable_lag()->set_count(5);
  (*server.mutable_least_applied())[0] = 22;
  (*server.mutable_least_applied())[1] = 15;
  const Report report = statuses.Build();
  EXPECT_EQ(report.rolled_back().pushes(), 3);
  EXPECT_EQ(Holds(report, "min_version"), std::optional<bool>(true));
  EXPECT_EQ(Holds(report, "max_version"), std::optional<bool>(true));
  EXPECT_EQ(Holds(report, "pushed_blocks"), std::nullopt);
  EXPECT_EQ(Holds(report, "kept_blocks"), std::optional<bool>(true));
  EXPECT_TRUE(report.reconciles().all());
  EXPECT_NE(ReportText(report).find("slot 0: 2 blocks of 2 acknowledged pushes were rolled back"),
            std::string::npos);
  EXPECT_NE(ReportJson(report).find("\"rolled_back\""), std::string::npos);
  server.set_min_version(38);
  server.set_max_version(38);
  EXPECT_EQ(Holds(statuses.Build(), "kept_blocks"), std::optional<bool>(false))
      << "fewer versions are lost than reported";
  server.set_min_version(36);
  EXPECT_EQ(Holds(statuses.Build(), "min_version"), std::optional<bool>(false))
      << "one more version is lost than reported";
}

TEST(ReportTest, StoppedJobIsNotFinished) {
  Statuses statuses;
  statuses.job.set_stopped("slot 1: 1 gradient was not finite");
  const Report report = statuses.Build();
  EXPECT_FALSE(report.finished());
  EXPECT_NE(ReportText(report).find("stopped early: slot 1: 1 gradient was not finite"),
            std::string::npos);
}

TEST(ReportTest, ReportsAnEmptyJob) {
  JobStatus job;
  job.set_phase(JobStatus::GATHERING);
  const Report report = BuildReport(job, {});
  EXPECT_EQ(report.samples_per_second(), 0);
  EXPECT_FALSE(report.has_result());
  EXPECT_TRUE(report.pushed_blocks().has_verdicts()) << "counts without pushes are 0, not missing";
  EXPECT_NE(ReportJson(report).find("\"result\": null"), std::string::npos);
}

TEST(ReportTest, IgnoresVersionsOfServersWithoutBlocks) {
  Statuses statuses;
  statuses.servers.push_back({"127.0.0.1:4713", ServerStatus()});
  EXPECT_EQ(statuses.Build().versions().min(), 40);
}

TEST(ReportTest, AWideHistogramHasRangesThatDouble) {
  Statuses statuses;
  Histogram& lag = *statuses.servers[0].status->mutable_lag();
  for (int i = 4; i < 20; ++i) lag.add_bucket(1);
  lag.set_max(25);
  const std::string text = ReportText(statuses.Build());
  EXPECT_NE(text.find("    8-15  "), std::string::npos) << text;
  EXPECT_NE(text.find("     16+  "), std::string::npos) << text;
}

}  // namespace
}  // namespace torchps
