#include "torchps/tools/report/report_command.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/tools/testing.h"

namespace torchps {
namespace {

struct Outcome {
  int code = 0;
  std::string out;
  std::string error;
};

Outcome Ask(FakeCluster& cluster, const ReportRequest& request,
            const Clock& clock = SteadyClock()) {
  std::ostringstream out, error;
  const int code = MakeReport(cluster, request, clock, out, error);
  return {code, out.str(), error.str()};
}

TEST(ReportCommandTest, PrintsAndWritesTheReport) {
  const TestFolder folder;
  FakeCluster cluster;
  ReportRequest request;
  request.file = folder.path("report.json");
  const Outcome outcome = Ask(cluster, request);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(outcome.out.find("digits-mlp finished: test accuracy 93.50 %"), 0u) << outcome.out;
  EXPECT_EQ(ReadWholeFile(request.file), ExpectedReport());
}

TEST(ReportCommandTest, WarnsThatAReportLacksAServer) {
  FakeCluster cluster;
  cluster.ReportAddresses();
  EXPECT_EQ(Ask(cluster, ReportRequest()).error, "");
  cluster.named.pop_back();
  EXPECT_EQ(Ask(cluster, ReportRequest()).error,
            "psctl: warning: the report is incomplete: --servers lacks server 1 of the job's 2; "
            "list all servers, in order: --servers=127.0.0.1:4711,127.0.0.1:4712\n");
}

TEST(ReportCommandTest, RejectsAServerOtherThanServer0) {
  FakeCluster cluster;
  cluster.job = FromText<JobStatus>("phase: NO_JOB");
  cluster.named.erase(cluster.named.begin());
  cluster.servers.erase(cluster.servers.begin());
  const Outcome outcome = Ask(cluster, ReportRequest());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.error,
            "psctl: there is no job to report on: --servers lacks server 0 of the job's 2; list "
            "all servers, in the order that the workers use\n");
}

TEST(ReportCommandTest, WaitRepeatsUntilTheJobEnds) {
  FakeCluster cluster;
  cluster.wait_answers = {absl::DeadlineExceededError("no answer"),
                          absl::DeadlineExceededError("no answer"), absl::OkStatus()};
  ReportRequest request;
  request.wait = true;
  EXPECT_EQ(Ask(cluster, request).code, 0);
  EXPECT_EQ(cluster.waits, 3);
}

TEST(ReportCommandTest, WithoutTheWaitFlagRequestsReturnAtOnce) {
  FakeCluster cluster;
  EXPECT_EQ(Ask(cluster, ReportRequest()).code, 0);
  EXPECT_EQ(cluster.waits, 0);
}

TEST(ReportCommandTest, AnUnreachableServerGivesExitCode3) {
  FakeCluster cluster;
  cluster.job = absl::UnavailableError("connection refused");
  ReportRequest request;
  request.wait = true;
  request.patience = absl::ZeroDuration();
  const Outcome outcome = Ask(cluster, request);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.error,
            "psctl: server 0 at 127.0.0.1:4711 cannot be reached: connection refused; is it "
            "running, and is the address right?\n");
}

TEST(ReportCommandTest, RejectsAnotherServiceAtOnce) {
  FakeCluster cluster;
  cluster.job = absl::FailedPreconditionError("answers, but is not a torchps server");
  ReportRequest request;
  request.wait = true;
  EXPECT_EQ(Ask(cluster, request).code, 4);
}

TEST(ReportCommandTest, FailsIfTheServerHasNoJob) {
  FakeCluster cluster;
  cluster.job = FromText<JobStatus>("phase: NO_JOB");
  const Outcome outcome = Ask(cluster, ReportRequest());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.error, "psctl: there is no job to report on: no worker has connected yet\n");
}

TEST(ReportCommandTest, AFailedConsistencyCheckFailsTheCommand) {
  FakeCluster cluster;
  cluster.job->mutable_epoch(0)->set_used(1);
  const Outcome outcome = Ask(cluster, ReportRequest());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("consistency check FAILED"), std::string::npos);
}

}  // namespace
}  // namespace torchps
