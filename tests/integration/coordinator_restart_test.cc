// Kills the coordinator's process at random moments of a job and restarts it on the same directory
// and port. Workers only see an outage, and the job uses each sample exactly once.

#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/join_request.h"
#include "tests/testing/program.h"
#include "torchps/common/hash.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/coordinator.grpc.pb.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSamples = 1600;

// Returns the Join request for a job that causes many requests: three workers, and leases of one
// batch.
JoinRequest ManyLeases() {
  JoinRequest request = SmallJoin();
  JobSpec& job = *request.mutable_job();
  job.set_workers(3);
  job.mutable_training()->set_epochs(2);
  job.mutable_training()->set_lease_batches(1);
  // Disables periodic checkpoints, because this job does not have blocks.
  job.mutable_durability()->set_checkpoint_seconds(0);
  request.set_train_samples(kSamples);
  return request;
}

// Calls the coordinator as a worker does and retries each call until answered.
class PatientWorker {
 public:
  PatientWorker(const std::string& address, uint64_t nonce) : nonce_(nonce) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
    stub_ = Coordinator::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  grpc::Status Join() {
    JoinRequest request = ManyLeases();
    request.set_nonce(nonce_);
    JoinReply reply;
    const grpc::Status status = Call(&Coordinator::Stub::Join, request, &reply);
    slot_ = reply.slot();
    incarnation_ = reply.incarnation();
    return status;
  }

  void Start() {
    AwaitStartRequest request;
    request.set_slot(slot_);
    request.set_incarnation(incarnation_);
    AwaitStartReply reply;
    do {
      ASSERT_TRUE(Call(&Coordinator::Stub::AwaitStart, request, &reply).ok());
      request.set_initialized(reply.action() == AwaitStartReply::INITIALIZE);
      request.set_initialization(reply.initialization());
    } while (reply.action() == AwaitStartReply::INITIALIZE);
  }

  // Works until the job is done. Returns the leases used, and counts them in `finished`.
  std::vector<DataLease> Work(std::atomic<int64_t>* finished) {
    std::vector<DataLease> used;
    NextWorkRequest request;
    request.set_slot(slot_);
    request.set_incarnation(incarnation_);
    while (true) {
      request.set_call(request.call() + 1);
      NextWorkReply reply;
      const grpc::Status status = Call(&Coordinator::Stub::NextWork, request, &reply);
      EXPECT_TRUE(status.ok()) << status.error_message();
      request.clear_finished_lease();
      if (!status.ok() || reply.done()) return used;
      request.set_idle(reply.go_idle());
      if (reply.has_lease()) {
        used.push_back(reply.lease());
        request.set_finished_lease(reply.lease().id());
        ++*finished;
      }
      if (reply.evaluate_epoch() == 0) continue;
      ReportEvaluationRequest report;
      report.set_slot(slot_);
      report.set_incarnation(incarnation_);
      report.mutable_result()->set_epoch(reply.evaluate_epoch());
      ReportEvaluationReply reported;
      EXPECT_TRUE(Call(&Coordinator::Stub::ReportEvaluation, report, &reported).ok());
    }
  }

  JobStatus Status() {
    JobStatus status;
    EXPECT_TRUE(Call(&Coordinator::Stub::GetJobStatus, JobStatusRequest(), &status).ok());
    return status;
  }

  grpc::Status TakeCheckpoint() {
    CheckpointStatus status;
    return Call(&Coordinator::Stub::TakeCheckpoint, TakeCheckpointRequest(), &status);
  }

 private:
  template <typename Request, typename Reply>
  grpc::Status Call(grpc::Status (Coordinator::Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Reply*),
                    const Request& request, Reply* reply) {
    const auto give_up = std::chrono::system_clock::now() + std::chrono::seconds(60);
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(give_up);
      context.set_wait_for_ready(true);
      const grpc::Status status = (stub_.get()->*method)(&context, request, reply);
      if (status.error_code() != grpc::StatusCode::UNAVAILABLE ||
          std::chrono::system_clock::now() > give_up) {
        return status;
      }
    }
  }

  const uint64_t nonce_;
  std::unique_ptr<Coordinator::Stub> stub_;
  int slot_ = -1;
  uint64_t incarnation_ = 0;
};

std::string NewDirectory() {
  std::string name = absl::StrCat(getenv("TEST_TMPDIR"), "/job.XXXXXX");
  return mkdtemp(name.data());
}

// Kills the server and restarts it with the same flags.
void KillAndRestart(ServerProgram* server, const std::vector<std::string>& flags) {
  const std::string address = server->address;
  kill(server->program->pid(), SIGKILL);
  server->program->AwaitExit();
  std::vector<std::string> command = {"torchps/ps_server",
                                      absl::StrCat("--listen=", address)};
  command.insert(command.end(), flags.begin(), flags.end());
  server->program = std::make_unique<Program>(command);
  ASSERT_NE(server->program->AwaitLine("torchps_server ready"), "");
}

TEST(CoordinatorRestartTest, AJobWithAKilledCoordinatorUsesEachSampleOnce) {
  const uint64_t seed = static_cast<uint64_t>(absl::GetCurrentTimeNanos());
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  uint64_t random = seed;
  const std::vector<std::string> flags = {absl::StrCat("--dir=", NewDirectory())};
  ServerProgram server = StartServerProgram(flags);
  ASSERT_NE(server.address, "");

  std::atomic<int64_t> finished{0};
  std::atomic<int> done{0};
  Mutex mutex;
  std::vector<DataLease> used;
  std::vector<std::thread> workers;
  for (uint64_t i = 1; i <= 3; ++i) {
    workers.emplace_back([&, i] {
      PatientWorker worker(server.address, i);
      ASSERT_TRUE(worker.Join().ok());
      worker.Start();
      const std::vector<DataLease> mine = worker.Work(&finished);
      MutexLock lock(&mutex);
      used.insert(used.end(), mine.begin(), mine.end());
      ++done;
    });
  }
  const int64_t leases = 2 * kSamples / 4;
  int kills = 0;
  for (int64_t next = 0; next < leases && done < 3; ++kills) {
    // Kills the server before the first lease, and then after a random number of further leases
    // each time.
    ASSERT_TRUE(Eventually([&] { return finished >= next || done == 3; }, absl::Seconds(60)));
    KillAndRestart(&server, flags);
    next = finished + 1 + static_cast<int64_t>(UniformBelow(random, leases / 6));
  }
  for (std::thread& worker : workers) worker.join();

  std::set<std::pair<int, int64_t>> seen;
  int64_t samples = 0;
  for (const DataLease& lease : used) {
    EXPECT_FALSE(lease.reissued());
    EXPECT_TRUE(seen.insert({lease.epoch(), lease.begin()}).second) << "handed out twice";
    samples += lease.end() - lease.begin();
  }
  EXPECT_EQ(samples, 2 * kSamples);
  EXPECT_GE(kills, 3);
  const JobStatus status = PatientWorker(server.address, 9).Status();
  EXPECT_EQ(status.phase(), JobStatus::DONE);
  EXPECT_EQ(status.slot_size(), 3) << "no worker had to join again";
  for (const EpochAccounting& accounting : status.epoch()) {
    EXPECT_EQ(accounting.used(), kSamples);
    EXPECT_EQ(accounting.reissued(), 0);
  }
  std::printf("killed %d times, %zu leases\n", kills, used.size());
}

TEST(CoordinatorRestartTest, ARestartedCoordinatorLogsTheNumberOfRestoredSlots) {
  const std::vector<std::string> flags = {absl::StrCat("--dir=", NewDirectory())};
  ServerProgram server = StartServerProgram(flags);
  PatientWorker anna(server.address, 1);
  ASSERT_TRUE(anna.Join().ok());
  KillAndRestart(&server, flags);
  anna.Status();
  EXPECT_THAT(server.program->AwaitError("the coordinator has restarted"),
              HasSubstr("with 1 slot"));
}

TEST(CoordinatorRestartTest, RefusesACheckpointWithoutADirectory) {
  ServerProgram server = StartServerProgram();
  PatientWorker anna(server.address, 1);
  ASSERT_TRUE(anna.Join().ok());
  const grpc::Status refused = anna.TakeCheckpoint();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("server 0 has no --dir"));
  EXPECT_FALSE(anna.Status().checkpoint().enabled());
}

TEST(CoordinatorRestartTest, RefusesToResumeWithoutACheckpoint) {
  const std::string directory = absl::StrCat("--dir=", NewDirectory());
  ServerProgram server = StartServerProgram({directory, "--resume"});
  PatientWorker anna(server.address, 1);
  const grpc::Status refused = anna.Join();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(refused.error_message(), HasSubstr("no checkpoint to continue from"));
}

}  // namespace
}  // namespace torchps
