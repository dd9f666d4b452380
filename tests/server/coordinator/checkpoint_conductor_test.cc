// Tests the conductor with servers that write, fail, hang and disconnect.

#include "torchps/server/coordinator/checkpoint_conductor.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/job_coordinator_rig.h"
#include "tests/testing/eventually.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Implements only the checkpoint calls of a server. Tests can make them fail.
class KeepingServer final : public ParameterService::Service {
 public:
  explicit KeepingServer(int index) : index_(index) {
    grpc::ServerBuilder builder;
    builder.RegisterService(this);
    // Uses a real port, because ThreadSanitizer cannot follow gRPC's in-process transport.
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    server_ = builder.BuildAndStart();
  }
  ~KeepingServer() override { GoAway(); }
  void GoAway() { server_->Shutdown(std::chrono::system_clock::now()); }

  std::shared_ptr<grpc::Channel> channel() const {
    return grpc::CreateChannel("127.0.0.1:" + std::to_string(port_),
                               grpc::InsecureChannelCredentials());
  }

  grpc::Status GetServerStatus(grpc::ServerContext*, const ServerStatusRequest*,
                               ServerStatus* reply) override {
    MutexLock lock(&mutex);
    *reply = status;
    return grpc::Status::OK;
  }

  grpc::Status WriteShard(grpc::ServerContext* context, const WriteShardRequest* request,
                          ShardInfo* reply) override {
    ++writes;
    {
      MutexLock lock(&mutex);
      time_to_write = absl::FromChrono(context->deadline()) - absl::Now();
    }
    while (hangs && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    if (!refusal.ok()) return refusal;
    reply->set_server_index(index_);
    reply->set_file(CheckpointDirectory::ShardName(index_, 2));
    reply->set_bytes(1000 + request->checkpoint());
    reply->set_longest_pause_seconds(0.25 * index_);
    reply->set_nonfinite_blocks(nonfinite);
    return grpc::Status::OK;
  }

  grpc::Status CommitCheckpoint(grpc::ServerContext*, const CommitCheckpointRequest* request,
                                CommitCheckpointReply*) override {
    if (away_commits > 0) {
      --away_commits;
      return {grpc::StatusCode::UNAVAILABLE, "not there"};
    }
    MutexLock lock(&mutex);
    if (!commit_refusal.ok()) return commit_refusal;
    committed = *request;
    return grpc::Status::OK;
  }

  std::atomic<int> writes{0};
  std::atomic<bool> hangs{false};
  std::atomic<int> away_commits{0};
  std::atomic<uint64_t> nonfinite{0};
  grpc::Status refusal;
  Mutex mutex;
  ServerStatus status;
  absl::Duration time_to_write;
  grpc::Status commit_refusal;
  std::optional<CommitCheckpointRequest> committed;

 private:
  const int index_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

JoinRequest OnRequest() {
  JoinRequest terms = JobCoordinatorRig::SmallJob();
  terms.mutable_job()->mutable_durability()->set_checkpoint_seconds(0);
  return terms;
}

class CheckpointConductorTest : public ::testing::Test {
 protected:
  CheckpointConductorTest() {
    for (int i = 0; i < 2; ++i) servers_.push_back(std::make_unique<KeepingServer>(i));
    directory_ = std::make_shared<const CheckpointDirectory>(&files_, "/data");
    CheckpointConductor::Options options;
    options.directory = directory_;
    options.connect = [this](int index,
                             const std::string&) -> absl::StatusOr<std::shared_ptr<grpc::Channel>> {
      return servers_[index]->channel();
    };
    options.done = [this](uint64_t number, const absl::StatusOr<CheckpointStatus>& outcome) {
      MutexLock lock(&mutex_);
      outcomes_.emplace_back(number, outcome);
    };
    options.commit_pause = absl::Milliseconds(5);
    options.clock = &clock_;
    conductor_ = std::make_unique<CheckpointConductor>(std::move(options));
    rig_.Start(2);
    rig_.TakeCheckpoint();
    for (const auto& server : servers_) {
      MutexLock lock(&server->mutex);
      server->status.set_job_id(rig_.Status().job_id());
      server->status.mutable_durability()->set_has_directory(true);
    }
    EXPECT_TRUE(files_.CreateDirectories("/data/checkpoint-000000000001").ok());
  }

  absl::StatusOr<CheckpointStatus> Take() {
    conductor_->Start(*rig_.coordinator().BeginCheckpoint(rig_.now()));
    return Outcome();
  }
  absl::StatusOr<CheckpointStatus> Outcome() {
    EXPECT_TRUE(Eventually([this] {
      MutexLock lock(&mutex_);
      return !outcomes_.empty();
    }));
    MutexLock lock(&mutex_);
    return outcomes_.empty() ? absl::UnknownError("none") : outcomes_.back().second;
  }

  FaultyFileSystem files_;
  SteadyClock clock_;
  JobCoordinatorRig rig_{OnRequest(), 1, /*has_directory=*/true};
  std::vector<std::unique_ptr<KeepingServer>> servers_;
  std::shared_ptr<const CheckpointDirectory> directory_;
  Mutex mutex_;
  std::vector<std::pair<uint64_t, absl::StatusOr<CheckpointStatus>>> outcomes_;
  std::unique_ptr<CheckpointConductor> conductor_;
};

TEST_F(CheckpointConductorTest, WritesTheManifestAndInformsEveryServer) {
  const absl::StatusOr<CheckpointStatus> taken = Take();
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->number(), 1u);
  EXPECT_GT(taken->bytes(), 2002u);
  EXPECT_DOUBLE_EQ(taken->longest_pause_seconds(), 0.25);
  EXPECT_EQ(taken->directory(), "/data/checkpoint-000000000001");
  const absl::StatusOr<Manifest> manifest = directory_->ReadManifest(1);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->coordinator().phase(), JobStatus::RUNNING);
  EXPECT_EQ(manifest->shard(1).file(), "server-1-of-2.safetensors");
  for (const auto& server : servers_) {
    MutexLock lock(&server->mutex);
    ASSERT_TRUE(server->committed.has_value());
    EXPECT_TRUE(DecodeManifest(server->committed->manifest()).ok());
    EXPECT_THAT(server->committed->keep(), ElementsAre(1));
    EXPECT_TRUE(server->committed->everywhere());
  }
}

TEST_F(CheckpointConductorTest, ANonfiniteCheckpointKeepsTheNewestFiniteOneToo) {
  servers_[0]->nonfinite = 2;
  servers_[1]->nonfinite = 3;
  JobCoordinator::CheckpointPlan plan = *rig_.coordinator().BeginCheckpoint(rig_.now());
  EXPECT_THAT(plan.keep_if_nonfinite, ElementsAre(1));
  plan.keep = {1};
  plan.keep_if_nonfinite = {7, 1};
  conductor_->Start(plan);
  const absl::StatusOr<CheckpointStatus> taken = Outcome();
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->nonfinite_blocks(), 5u);
  EXPECT_EQ(NonfiniteBlocks(*directory_->ReadManifest(1)), 5u);
  for (const auto& server : servers_) {
    MutexLock lock(&server->mutex);
    EXPECT_THAT(server->committed->keep(), ElementsAre(7, 1));
  }
}

TEST_F(CheckpointConductorTest, ErrorNamesTheServerThatFailed) {
  servers_[1]->refusal = {grpc::StatusCode::RESOURCE_EXHAUSTED, "no space left on device"};
  const absl::StatusOr<CheckpointStatus> taken = Take();
  EXPECT_TRUE(absl::IsResourceExhausted(taken.status()));
  EXPECT_EQ(taken.status().message(), "server 1: no space left on device");
  EXPECT_TRUE(absl::IsNotFound(directory_->ReadManifest(1).status()));
  MutexLock lock(&servers_[0]->mutex);
  EXPECT_FALSE(servers_[0]->committed.has_value());
}

TEST_F(CheckpointConductorTest, WritesNoManifestWhileAServerIsAway) {
  servers_[1]->GoAway();
  const absl::StatusOr<CheckpointStatus> taken = Take();
  EXPECT_TRUE(absl::IsUnavailable(taken.status())) << taken.status();
  EXPECT_THAT(std::string(taken.status().message()), StartsWith("server 1: "));
  EXPECT_EQ(servers_[0]->writes, 0);
}

TEST_F(CheckpointConductorTest, WritesNoManifestIfAServerCannotWriteItsShard) {
  const auto expect = [this](absl::StatusCode code, const std::string& why) {
    {
      MutexLock lock(&mutex_);
      outcomes_.clear();
    }
    rig_.TakeCheckpoint();
    const absl::StatusOr<CheckpointStatus> taken = Take();
    EXPECT_EQ(taken.status().code(), code);
    EXPECT_EQ(taken.status().message(), "server 1: " + why);
    EXPECT_EQ(servers_[0]->writes, 0);
    rig_.coordinator().EndCheckpoint(taken, rig_.now());
  };
  const auto change = [this](const std::function<void(ServerStatus*)>& change) {
    MutexLock lock(&servers_[1]->mutex);
    change(&servers_[1]->status);
  };
  change([](ServerStatus* status) { status->mutable_durability()->set_has_directory(false); });
  expect(absl::StatusCode::kFailedPrecondition,
         "it has no directory for checkpoints; start it with --dir");
  change([](ServerStatus* status) { status->set_job_id(status->job_id() + 1); });
  const uint64_t job_id = rig_.Status().job_id();
  expect(absl::StatusCode::kFailedPrecondition,
         absl::StrCat("it works for another job: '', number ", job_id + 1, "; expected number ",
                      job_id));
  change([](ServerStatus* status) { status->set_job_id(0); });
  expect(absl::StatusCode::kUnavailable, "it was restarted, and no worker has connected to it yet");
  change([](ServerStatus* status) { status->mutable_restoring(); });
  expect(absl::StatusCode::kUnavailable, "it is still restoring the job");
}

TEST_F(CheckpointConductorTest, TheWriteDeadlineGrowsWithTheShard) {
  {
    MutexLock lock(&servers_[1]->mutex);
    servers_[1]->status.set_state_bytes(uint64_t{40} << 30);
  }
  ASSERT_TRUE(Take().ok());
  // Ten minutes, and the time for 40 GiB at 4 MiB/s.
  const absl::Duration expected = absl::Minutes(10) + absl::Seconds(10240);
  MutexLock lock(&servers_[1]->mutex);
  // gRPC rounds long deadlines up to minutes.
  EXPECT_LE(servers_[1]->time_to_write, expected + absl::Minutes(2));
  EXPECT_GT(servers_[1]->time_to_write, expected - absl::Minutes(1));
}

TEST_F(CheckpointConductorTest, ReportsAManifestThatCannotBeWritten) {
  files_.SetCapacity(10);
  const absl::StatusOr<CheckpointStatus> taken = Take();
  EXPECT_TRUE(absl::IsResourceExhausted(taken.status())) << taken.status();
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("MANIFEST.json"));
  files_.SetCapacity(1 << 20);
  EXPECT_TRUE(absl::IsNotFound(directory_->ReadManifest(1).status()));
}

TEST_F(CheckpointConductorTest, RetriesTheCommitAtAServerBrieflyAway) {
  servers_[1]->away_commits = 3;
  const absl::StatusOr<CheckpointStatus> taken = Take();
  ASSERT_TRUE(taken.ok()) << taken.status();
  MutexLock lock(&servers_[1]->mutex);
  EXPECT_TRUE(servers_[1]->committed.has_value());
}

TEST_F(CheckpointConductorTest, RemovesTheManifestIfAServerRestartedBeforeTheCommit) {
  {
    MutexLock lock(&servers_[1]->mutex);
    servers_[1]->commit_refusal = {grpc::StatusCode::FAILED_PRECONDITION, "I was restarted"};
  }
  EXPECT_EQ(Take().status().message(), "server 1: I was restarted");
  EXPECT_TRUE(absl::IsNotFound(directory_->ReadManifest(1).status()));
  MutexLock lock(&servers_[0]->mutex);
  ASSERT_TRUE(servers_[0]->committed.has_value());
  EXPECT_FALSE(servers_[0]->committed->everywhere()) << "server 1 needs the previous checkpoint";
}

TEST_F(CheckpointConductorTest, StopCancelsTheCurrentCheckpoint) {
  servers_[1]->hangs = true;
  conductor_->Start(*rig_.coordinator().BeginCheckpoint(rig_.now()));
  ASSERT_TRUE(Eventually([this] { return servers_[1]->writes > 0; }));
  conductor_->Stop();
  EXPECT_TRUE(absl::IsCancelled(Outcome().status()));
}

}  // namespace
}  // namespace torchps
