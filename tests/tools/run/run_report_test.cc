#include "torchps/tools/run/run_report.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/tools/testing.h"

namespace torchps {
namespace {

absl::StatusOr<std::optional<Report>> Ask(FakeCluster& cluster, bool finished,
                                          const PartRestarts& restarts = {}) {
  return AskForReport(cluster, "127.0.0.1:4711", finished, absl::Seconds(1), restarts, Targets());
}

TEST(RunReportTest, ARestartOfAWorkerOfSeveralProcessesCountsOnce) {
  FakeCluster cluster;
  const auto report = Ask(cluster, /*finished=*/true,
                          {{PartName{true, 0}, 1},
                           {PartName{true, 1}, 0},
                           {PartName{false, 0, 0}, 2},
                           {PartName{false, 0, 1}, 3},
                           {PartName{false, 1, 0}, 1},
                           {PartName{false, 1, 1}, 1}});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->has_value());
  EXPECT_EQ((*report)->restarts().servers(), 1);
  EXPECT_EQ((*report)->restarts().workers(), 4);
}

TEST(RunReportTest, OmitsRestartsIfNoneHappened) {
  FakeCluster cluster;
  const auto report = Ask(cluster, /*finished=*/true, {{PartName{false, 0}, 0}});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->has_value());
  EXPECT_FALSE((*report)->has_restarts());
}

TEST(RunReportTest, MissingJobIsAnErrorUnlessInterrupted) {
  FakeCluster cluster;
  cluster.job->set_phase(JobStatus::NO_JOB);
  const auto cut_short = Ask(cluster, /*finished=*/false);
  ASSERT_TRUE(cut_short.ok()) << cut_short.status();
  EXPECT_FALSE(cut_short->has_value());
  EXPECT_EQ(Ask(cluster, /*finished=*/true).status().code(), absl::StatusCode::kInternal);
}

TEST(RunReportTest, ARunWithoutUpdatesHasNotTrained) {
  Report report;
  report.add_servers();
  report.add_servers();
  EXPECT_TRUE(IsUntrained(report));
  report.mutable_servers(1)->set_error("connection refused");
  EXPECT_FALSE(IsUntrained(report));
  report.mutable_servers(1)->clear_error();
  report.mutable_versions()->set_max(1);
  EXPECT_FALSE(IsUntrained(report));
}

}  // namespace
}  // namespace torchps
