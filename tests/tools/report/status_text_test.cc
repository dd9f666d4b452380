#include <gtest/gtest.h>

#include <sstream>

#include "tests/tools/testing.h"
#include "torchps/tools/job_commands.h"
#include "torchps/tools/report/status_command.h"

namespace torchps {
namespace {

constexpr absl::Duration kViewTimeout = absl::Seconds(1);

void SetRunning(FakeCluster& cluster) {
  cluster.job->set_phase(JobStatus::RUNNING);
  for (SlotAccounting& slot : *cluster.job->mutable_slot())
    slot.set_state(SlotAccounting::TRAINING);
  for (auto& server : cluster.servers) {
    for (SlotStatus& slot : *server->mutable_slot()) slot.set_live(true);
  }
}

TEST(StatusTextTest, RunningClusterShowsAHeadlineAndTwoTables) {
  FakeCluster cluster;
  SetRunning(cluster);
  EXPECT_EQ(
      StatusText(ReadCluster(cluster, kViewTimeout, absl::ZeroDuration()), nullptr),
      "digits-mlp is running: epoch 2 of 2, 2.50 s, 800 samples/s, test accuracy 93.50 % after "
      "epoch 2\n"
      "mlp with 50,890 parameters, on generated digits of seed 1, asynchronous, each push alone, "
      "at "
      "most 4 steps ahead\n"
      "\nserver  address         blocks      size  versions          lag  clock gap  parked  "
      "applied"
      "  rejected        in       out\n"
      "     0  127.0.0.1:4711       2   293 KiB        40  0.8 (max 2)      max 2       0       80"
      "         0  11.4 MiB  11.7 MiB\n"
      "     1  127.0.0.1:4712       1  97.7 KiB        40  1.2 (max 7)      max 3       0       40"
      "         0   3.8 MiB   3.9 MiB\n"
      "\nslot  host   device       path     state                                epoch  clock  "
      "ahead"
      "  steps  samples/s  wait  rejected\n"
      "   0  alpha  cpu          network  training                                 2     24      8"
      "     24        480  10 %         0\n"
      "   1  beta   2 processes  network  training                                 2     16      0"
      "     16        320   4 %         0\n"
      "             cpu                   stage 0, 50,240 parameters, 392 KiB\n"
      "      gamma  cpu                   stage 1, 650 parameters, 5.1 KiB\n");
}

TEST(StatusTextTest, AWholeBatchJobShowsBatchesInsteadOfLeads) {
  FakeCluster cluster;
  SetRunning(cluster);
  ConsistencySpec& consistency = *cluster.job->mutable_job()->mutable_consistency();
  consistency.set_apply(ConsistencySpec::WHOLE_BATCH);
  consistency.set_staleness_bound(1);
  for (auto& server : cluster.servers) {
    server->set_max_version(1812);
    server->set_min_version(1812);
    server->set_early_block_updates(3 * server->blocks());
    server->mutable_verdicts()->set_rejected(2 * server->blocks());
    const uint64_t all = 250 * server->blocks();
    *server->mutable_lag() = Histogram();
    server->mutable_lag()->add_bucket(all - server->blocks());
    server->mutable_lag()->add_bucket(server->blocks());
    server->mutable_lag()->set_max(1);
    server->mutable_lag()->set_count(all);
  }
  cluster.servers[1]->mutable_slot(0)->set_push_wait_seconds(0.25);
  cluster.servers[1]->mutable_slot(0)->set_longest_push_wait_seconds(0.055);
  const auto text = [&] {
    return StatusText(ReadCluster(cluster, kViewTimeout, absl::ZeroDuration()), nullptr);
  };
  EXPECT_NE(
      text().find(
          "seed 1, asynchronous, staleness at most 1 update\n"
          "updates 1,812 (3 early), newest values 99.6 %, refused 2, longest wait 55 ms\n"
          "\nserver  address         blocks      size  versions          lag  applied  rejected"
          "        in       out\n"
          "     0  127.0.0.1:4711       2   293 KiB      1812  0.0 (max 1)       80         4"
          "  11.4 MiB  11.7 MiB\n"),
      std::string::npos)
      << text();
  EXPECT_NE(
      text().find("  epoch  clock  steps  samples/s  wait  rejected\n"
                  "   0  alpha  cpu          network  training                                 "
                  "2     24     24        480  15 %         0\n"),
      std::string::npos)
      << text();
  cluster.servers[1] = absl::UnavailableError("connection refused");
  EXPECT_NE(text().find("\n     1  127.0.0.1:4712       -        -         -            -        -"
                        "         -         -         -\n"),
            std::string::npos)
      << text();
  for (auto& server : cluster.servers) {
    if (server.ok()) server->clear_lag();
  }
  EXPECT_EQ(text().find("updates "), std::string::npos) << "nothing was applied yet";
}

TEST(StatusTextTest, ListsTheDevicesBelowAMultiDeviceSlot) {
  FakeCluster cluster;
  SetRunning(cluster);
  cluster.job->mutable_slot(1)->clear_member();
  SlotAccounting& slot = *cluster.job->mutable_slot(0);
  slot.set_device("cuda:0,cuda:1");
  for (const char* device : {"cuda:0", "cuda:1"}) {
    ReplicaMember& member = *slot.add_member();
    member.set_host(slot.host());
    member.set_device(device);
    member.set_stage(-1);
    member.set_model_bytes(3 << 20);
  }
  const auto text = [&] {
    return StatusText(ReadCluster(cluster, kViewTimeout, absl::ZeroDuration()), nullptr);
  };
  EXPECT_NE(text().find("slot  host   device     path     state             epoch  clock"),
            std::string::npos)
      << text();
  EXPECT_NE(text().find("   0  alpha  2 devices  network  training              2     24"),
            std::string::npos)
      << text();
  EXPECT_NE(text().find("\n             cuda:1              replica, 3.0 MiB\n"), std::string::npos)
      << text();
  slot.mutable_member(1)->set_host("beta");
  slot.mutable_member(1)->set_stage(1);
  slot.mutable_member(1)->set_parameters(25000);
  EXPECT_NE(text().find("beta   cuda:1              stage 1, 25,000 parameters, 3.0 MiB\n"),
            std::string::npos)
      << text();
}

TEST(StatusTextTest, ShowsTheTransportOfASlot) {
  FakeCluster cluster;
  SetRunning(cluster);
  cluster.servers[0]->mutable_slot(0)->set_shared_memory(true);
  const auto text = [&] {
    return StatusText(ReadCluster(cluster, kViewTimeout, absl::ZeroDuration()), nullptr);
  };
  EXPECT_NE(text().find("shared with 1 of 2"), std::string::npos) << text();
  cluster.servers[1]->mutable_slot(0)->set_shared_memory(true);
  EXPECT_NE(text().find("shared memory"), std::string::npos) << text();
}

TEST(StatusTextTest, RatesCoverTheTimeSinceTheLastLook) {
  FakeCluster cluster;
  SetRunning(cluster);
  const ClusterView before = ReadCluster(cluster, kViewTimeout, absl::Seconds(10));
  cluster.job->mutable_slot(0)->mutable_figures()->set_samples(1700);
  const ClusterView after = ReadCluster(cluster, kViewTimeout, absl::Seconds(12));
  EXPECT_NE(StatusText(after, &before).find(", 250 samples/s,"), std::string::npos)
      << StatusText(after, &before);
}

TEST(StatusTextTest, ShowsARowForAnUnreachableServer) {
  FakeCluster cluster;
  cluster.servers[1] = absl::UnavailableError("connection refused");
  std::ostringstream out;
  EXPECT_EQ(ShowStatus(cluster, out), 0);
  EXPECT_NE(out.str().find("server 1 at 127.0.0.1:4712 cannot be reached: connection refused; "),
            std::string::npos)
      << out.str();
}

TEST(StatusTextTest, ShowsServersWithoutACoordinator) {
  FakeCluster cluster;
  cluster.job = absl::UnavailableError("connection refused");
  cluster.servers[0] = absl::UnavailableError("connection refused");
  std::ostringstream out;
  EXPECT_EQ(ShowStatus(cluster, out), 0);
  EXPECT_NE(
      out.str().find("server 0, which knows about the job, does not answer: connection refused"),
      std::string::npos);
  EXPECT_NE(out.str().find("127.0.0.1:4712"), std::string::npos);
}

TEST(StatusTextTest, UnreachableClusterIsExitCode3) {
  FakeCluster cluster;
  cluster.job = absl::UnavailableError("connection refused");
  for (auto& server : cluster.servers) server = absl::UnavailableError("connection refused");
  std::ostringstream out;
  EXPECT_EQ(ShowStatus(cluster, out), 3);
}

TEST(StatusTextTest, RejectedRequestIsExitCode4) {
  FakeCluster cluster;
  cluster.job = absl::UnauthenticatedError("refuses this client: it speaks without TLS");
  for (auto& server : cluster.servers) server = cluster.job.status();
  std::ostringstream out;
  EXPECT_EQ(ShowStatus(cluster, out), 4);
  EXPECT_NE(out.str().find("server 1 at 127.0.0.1:4712 refuses this client: it speaks without"),
            std::string::npos)
      << out.str();
}

TEST(StatusTextTest, ReportsServersWithoutAJob) {
  FakeCluster cluster;
  cluster.job = FromText<JobStatus>("phase: NO_JOB");
  const std::string text =
      StatusText(ReadCluster(cluster, kViewTimeout, absl::ZeroDuration()), nullptr);
  EXPECT_EQ(text.find("no job yet: no worker has connected\n"), 0u) << text;
}

TEST(StatusTextTest, WaitingJobCountsJoinedWorkers) {
  FakeCluster cluster;
  cluster.job = FromText<JobStatus>(
      "phase: GATHERING job { name: 'digits' workers: 3 } slot { slot: 0 state: JOINED }");
  const std::string text =
      StatusText(ReadCluster(cluster, kViewTimeout, absl::ZeroDuration()), nullptr);
  EXPECT_EQ(text.find("digits is gathering: 1 of 3 workers joined\n"), 0u) << text;
}

TEST(StatusTextTest, ShowsDurabilityAndStorageErrors) {
  FakeCluster cluster;
  const double now = cluster.job->running_seconds();
  CheckpointStatus& checkpoint = *cluster.job->mutable_checkpoint();
  const auto text = [&cluster] {
    std::ostringstream out;
    EXPECT_EQ(ShowStatus(cluster, out), 0);
    return out.str();
  };
  EXPECT_EQ(text().find("checkpoint"), std::string::npos);
  checkpoint.set_enabled(true);
  EXPECT_NE(text().find("no checkpoint yet\n"), std::string::npos);
  checkpoint.set_number(3);
  checkpoint.set_bytes(4096);
  checkpoint.set_seconds(0.5);
  checkpoint.set_at_seconds(now - 1.5);
  EXPECT_NE(text().find("checkpoint 3: 4.0 KiB in 500 ms, 1.50 s ago\n"), std::string::npos)
      << text();
  checkpoint.set_last_error("server 1: the disk is full");
  EXPECT_NE(text().find(" ago; the last one failed: server 1: the disk is full\n"),
            std::string::npos);
  EXPECT_EQ(text().find("not finite"), std::string::npos);
  cluster.servers[1]->set_nonfinite_blocks(1);
  EXPECT_NE(text().find("the model is not finite: 1 block holds infinite or NaN values; to "
                        "go back, stop the job, move the non-finite checkpoints away, and start "
                        "the job with --resume (docs/operate.md)\n"),
            std::string::npos)
      << text();
  checkpoint.set_nonfinite_blocks(7);
  EXPECT_NE(text().find("the model is not finite: 7 blocks hold"), std::string::npos);
  cluster.job->set_stopped("slot 1: a gradient was not finite");
  EXPECT_NE(text().find("stopped early: slot 1: a gradient was not finite\n"), std::string::npos);
}

TEST(StatusTextTest, ReportsServersThatTheFlagDoesNotName) {
  FakeCluster cluster;
  const auto text = [&cluster] {
    std::ostringstream out;
    EXPECT_EQ(ShowStatus(cluster, out), 0);
    return out.str();
  };
  cluster.ReportAddresses();
  EXPECT_EQ(text().find("--servers"), std::string::npos) << text();
  cluster.named.pop_back();
  cluster.servers.pop_back();
  EXPECT_NE(text().find("\n--servers lacks server 1 of the job's 2; list all servers, in order: "
                        "--servers=127.0.0.1:4711,127.0.0.1:4712\n"),
            std::string::npos)
      << text();
  cluster.job->clear_server();
  EXPECT_NE(text().find("\n--servers lacks server 1 of the job's 2; list all servers, in the order "
                        "that the workers use\n"),
            std::string::npos)
      << text();
}

TEST(StatusTextTest, AnUnreachableServer0IsNotShownAsAMissingJob) {
  FakeCluster cluster;
  cluster.job = FromText<JobStatus>("phase: NO_JOB");
  cluster.named.erase(cluster.named.begin());
  cluster.servers.erase(cluster.servers.begin());
  std::ostringstream out;
  EXPECT_EQ(ShowStatus(cluster, out), 0);
  EXPECT_EQ(out.str().find("127.0.0.1:4712 does not coordinate the job, server 0 does\n"), 0u)
      << out.str();
  EXPECT_NE(out.str().find("\n--servers lacks server 0 of the job's 2; list all"),
            std::string::npos)
      << out.str();
}

TEST(StatusTextTest, ReportsServersInTheWrongOrder) {
  FakeCluster cluster;
  cluster.job = FromText<JobStatus>("phase: NO_JOB");
  std::swap(cluster.named[0], cluster.named[1]);
  std::swap(cluster.servers[0], cluster.servers[1]);
  std::ostringstream out;
  EXPECT_EQ(ShowStatus(cluster, out), 0);
  EXPECT_NE(out.str().find("\n127.0.0.1:4712 is server 1 of the job, but --servers lists it as "
                           "server 0; list all servers, in the order"),
            std::string::npos)
      << out.str();
}

TEST(StatusTextTest, DoesNotComplainAboutTheOrderOfSilentServers) {
  FakeCluster cluster;
  cluster.ReportAddresses();
  cluster.servers[0] = absl::UnavailableError("connection refused");
  cluster.servers[1] = ServerStatus();
  std::ostringstream out;
  EXPECT_EQ(ShowStatus(cluster, out), 0);
  EXPECT_EQ(out.str().find("--servers"), std::string::npos) << out.str();
}

TEST(TakeCheckpointTest, ReportsTheCheckpointOrTheError) {
  FakeCluster cluster;
  std::ostringstream out, error;
  cluster.checkpoint = absl::FailedPreconditionError("server 0 has no --dir");
  EXPECT_NE(TakeCheckpoint(cluster, out, error), 0);
  EXPECT_EQ(out.str(), "");
  EXPECT_EQ(error.str(), "psctl: no checkpoint was taken: server 0 has no --dir\n");
  CheckpointStatus taken;
  taken.set_number(7);
  taken.set_bytes(4096);
  taken.set_seconds(0.5);
  taken.set_longest_pause_seconds(0.25);
  taken.set_directory("job/checkpoint-000000000007");
  cluster.checkpoint = taken;
  EXPECT_EQ(TakeCheckpoint(cluster, out, error), 0);
  EXPECT_EQ(out.str(),
            "checkpoint 7: 4.0 KiB in 500 ms, no block was held for more than 250 ms\n"
            "job/checkpoint-000000000007\n");
}

TEST(StopClusterTest, StopsServer0First) {
  FakeCluster cluster;
  std::ostringstream out, error;
  EXPECT_EQ(StopCluster(cluster, out, error), 0);
  EXPECT_EQ(cluster.shut_down, (std::vector<int>{0, 1}));
  EXPECT_EQ(out.str(),
            "server 0 at 127.0.0.1:4711 has stopped\nserver 1 at 127.0.0.1:4712 has stopped\n");
}

TEST(StopClusterTest, AcceptsAServerThatAlreadyEnded) {
  FakeCluster cluster;
  cluster.servers[1] = absl::UnavailableError("connection refused");
  std::ostringstream out, error;
  EXPECT_EQ(StopCluster(cluster, out, error), 0);
  EXPECT_EQ(error.str(),
            "psctl: server 1 at 127.0.0.1:4712 cannot be reached: connection refused; is it "
            "running, and is the address right?\n");
}

TEST(StopClusterTest, ReportsServersThatTheFlagDoesNotName) {
  FakeCluster cluster;
  cluster.ReportAddresses();
  cluster.named.pop_back();
  std::ostringstream out, error;
  EXPECT_EQ(StopCluster(cluster, out, error), 0);
  EXPECT_EQ(cluster.shut_down, (std::vector<int>{0}));
  EXPECT_EQ(error.str(),
            "psctl: server 1 at 127.0.0.1:4712 was not asked to stop: --servers does not name it; "
            "'psctl stop --servers=127.0.0.1:4712' stops it\n");
}

TEST(StopClusterTest, ReportsServer0IfTheFlagDoesNotNameIt) {
  FakeCluster cluster;
  cluster.ReportAddresses();
  cluster.named.erase(cluster.named.begin());
  const auto told = [&cluster] {
    std::ostringstream out, error;
    EXPECT_EQ(StopCluster(cluster, out, error), 0);
    return error.str();
  };
  EXPECT_EQ(told().find("psctl: server 0 at 127.0.0.1:4711 was not asked to stop"), 0u) << told();
  cluster.named = {"localhost:4711"};
  EXPECT_EQ(told(),
            "psctl: --servers names 1 of the job's 2 servers; the others were not asked to stop\n");
}

// If a server is asked for the job, it starts a coordinator. On a server other than server 0, that
// coordinator would take over the job in the server's directory.
TEST(StopClusterTest, AsksOnlyTheCoordinatorForTheJob) {
  FakeCluster cluster;
  cluster.ReportAddresses();
  cluster.named.erase(cluster.named.begin());
  cluster.servers.erase(cluster.servers.begin());
  std::ostringstream out, error;
  EXPECT_EQ(StopCluster(cluster, out, error), 0);
  EXPECT_EQ(error.str(), "");
  cluster.servers[0]->clear_job_id();
  EXPECT_EQ(StopCluster(cluster, out, error), 0);
  EXPECT_EQ(cluster.looks, 0);
}

TEST(StopClusterTest, UnreachableClusterIsExitCode3) {
  FakeCluster cluster;
  for (auto& server : cluster.servers) server = absl::UnavailableError("connection refused");
  std::ostringstream out, error;
  EXPECT_EQ(StopCluster(cluster, out, error), 3);
}

TEST(StopClusterTest, RejectedRequestIsExitCode4) {
  FakeCluster cluster;
  cluster.servers[1] = absl::UnauthenticatedError("refuses this client");
  std::ostringstream out, error;
  EXPECT_EQ(StopCluster(cluster, out, error), 4);
}

TEST(StopClusterTest, FailsIfAServerKeepsRunning) {
  FakeCluster cluster;
  cluster.servers[0] = absl::DeadlineExceededError("agreed to stop, but is still running");
  std::ostringstream out, error;
  EXPECT_EQ(StopCluster(cluster, out, error), 1);
}

}  // namespace
}  // namespace torchps
