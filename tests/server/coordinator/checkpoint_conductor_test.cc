// The conductor against servers that write, fail, hang and go away.

#include "server/coordinator/checkpoint_conductor.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/manifest.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/job_coordinator_rig.h"
#include "tests/testing/eventually.h"
#include "tests/testing/faulty_file_system.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A server that only knows how to keep a checkpoint, or not.
class KeepingServer final : public ParameterService::Service {
 public:
  explicit KeepingServer(int index) : index_(index) {
    grpc::ServerBuilder builder;
    builder.RegisterService(this);
    // Not within the process: ThreadSanitizer cannot see how gRPC hands bytes over there.
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    server_ = builder.BuildAndStart();
  }
  ~KeepingServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::shared_ptr<grpc::Channel> channel() const {
    return grpc::CreateChannel("127.0.0.1:" + std::to_string(port_),
                               grpc::InsecureChannelCredentials());
  }

  grpc::Status WriteShard(grpc::ServerContext* context, const WriteShardRequest* request,
                          ShardInfo* reply) override {
    ++writes;
    while (hangs && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    if (!refusal.ok()) return refusal;
    reply->set_server_index(index_);
    reply->set_file(CheckpointDirectory::ShardName(index_, 2));
    reply->set_bytes(1000 + request->checkpoint());
    reply->set_longest_pause_seconds(0.25 * index_);
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
  grpc::Status refusal;
  Mutex mutex;
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

TEST_F(CheckpointConductorTest, TheManifestStandsWhenAllShardsDoAndEveryServerHearsOfIt) {
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

TEST_F(CheckpointConductorTest, WhereOneServerFailsThereIsNoCheckpointAndItIsNamed) {
  servers_[1]->refusal = {grpc::StatusCode::RESOURCE_EXHAUSTED, "no space left on device"};
  const absl::StatusOr<CheckpointStatus> taken = Take();
  EXPECT_TRUE(absl::IsResourceExhausted(taken.status()));
  EXPECT_EQ(taken.status().message(), "server 1: no space left on device");
  EXPECT_TRUE(absl::IsNotFound(directory_->ReadManifest(1).status()));
  MutexLock lock(&servers_[0]->mutex);
  EXPECT_FALSE(servers_[0]->committed.has_value());
}

TEST_F(CheckpointConductorTest, AManifestThatCannotBeWrittenIsTheReason) {
  files_.SetCapacity(10);
  const absl::StatusOr<CheckpointStatus> taken = Take();
  EXPECT_TRUE(absl::IsResourceExhausted(taken.status())) << taken.status();
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("MANIFEST.json"));
  files_.SetCapacity(1 << 20);
  EXPECT_TRUE(absl::IsNotFound(directory_->ReadManifest(1).status()));
}

TEST_F(CheckpointConductorTest, AServerThatIsAwayForAMomentIsAskedAgainToComplete) {
  servers_[1]->away_commits = 3;
  const absl::StatusOr<CheckpointStatus> taken = Take();
  ASSERT_TRUE(taken.ok()) << taken.status();
  MutexLock lock(&servers_[1]->mutex);
  EXPECT_TRUE(servers_[1]->committed.has_value());
}

TEST_F(CheckpointConductorTest, WhatAServerHasGoneBackBehindIsNoCheckpoint) {
  {
    MutexLock lock(&servers_[1]->mutex);
    servers_[1]->commit_refusal = {grpc::StatusCode::FAILED_PRECONDITION, "I was restarted"};
  }
  EXPECT_EQ(Take().status().message(), "server 1: I was restarted");
  EXPECT_TRUE(absl::IsNotFound(directory_->ReadManifest(1).status()));
  MutexLock lock(&servers_[0]->mutex);
  ASSERT_TRUE(servers_[0]->committed.has_value());
  EXPECT_FALSE(servers_[0]->committed->everywhere()) << "server 1 needs the one before";
}

TEST_F(CheckpointConductorTest, AStopBreaksOffWhatIsUnderWay) {
  servers_[1]->hangs = true;
  conductor_->Start(*rig_.coordinator().BeginCheckpoint(rig_.now()));
  ASSERT_TRUE(Eventually([this] { return servers_[1]->writes > 0; }));
  conductor_->Stop();
  EXPECT_TRUE(absl::IsCancelled(Outcome().status()));
}

}  // namespace
}  // namespace torchps
