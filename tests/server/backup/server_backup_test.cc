// Tests two servers that keep copies of each other's files (durability.copies) and lose their disks
// one after the other.

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/checkpoint_driver.h"
#include "tests/testing/eventually.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "torchps/common/clock.h"
#include "torchps/common/hash.h"
#include "torchps/common/mutex.h"
#include "torchps/server/server.h"
#include "torchps/storage/file_system.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kServers = 2;
constexpr char kLog[] = "durability { level: LOG copies: 1 } optimizer { adam {} }";
constexpr char kCheckpoint[] = "durability { copies: 1 }";

class ServerBackupTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { PrepareGrpcProcess(); }

  ServerBackupTest() {
    for (int k = 0; k < kServers; ++k) disks_[k] = std::make_unique<FaultyFileSystem>();
  }

  void Start(int k) { ASSERT_EQ(TryStart(k, /*copies_at=*/""), absl::OkStatus()); }
  absl::Status TryStart(int k, const std::string& copies_at) {
    Server::Options options;
    options.copies_at = copies_at;
    options.clock = &clock_;
    options.seed = ++incarnations_;
    options.files = disks_[k].get();
    options.dir = "/ps";
    options.log = [this, k](const std::string& line) {
      MutexLock lock(&mutex_);
      said_ += absl::StrCat("server ", k, ": ", line, "\n");
    };
    auto server = Server::Start(options);
    if (!server.ok()) return server.status();
    servers_[k] = *std::move(server);
    addresses_[k] = servers_[k]->address();
    return absl::OkStatus();
  }
  void StartAll() {
    for (int k = 0; k < kServers; ++k) Start(k);
  }
  // Server k's machine is lost, with its disk.
  void Lose(int k) {
    disks_[k]->PowerOffAt(1);
    servers_[k] = nullptr;
    disks_[k] = std::make_unique<FaultyFileSystem>();
  }

  HelloRequest Hello(int k, const std::string& job) const {
    JobHarness::Options model;
    model.trained = 5000;
    model.averaged = 100;
    model.block_elements = 500;
    model.job = job;
    HelloRequest hello = JobHarness::Hello(model);
    hello.set_server_index(k);
    hello.set_server_count(kServers);
    for (const std::string& address : addresses_) hello.add_server_address(address);
    hello.set_continues(continues_);
    return hello;
  }

  // Creates server k's worker, which says Hello at the current address.
  PlainWorker& Greet(int k, const std::string& job) {
    workers_[k] = std::make_unique<PlainWorker>(PlainChannel(addresses_[k]), Hello(k, job));
    EXPECT_EQ(workers_[k]->Hello(), absl::OkStatus()) << "server " << k;
    return *workers_[k];
  }
  void GreetAll(const std::string& job) {
    for (int k = 0; k < kServers; ++k) Greet(k, job);
  }
  void Begin(const std::string& job) {
    StartAll();
    GreetAll(job);
    for (const auto& worker : workers_) ASSERT_EQ(worker->Initialize(0.5f), absl::OkStatus());
    continues_ = true;
  }
  void PushAll(Step step) {
    for (const auto& worker : workers_) {
      ASSERT_EQ(worker->Pull(step - 1), absl::OkStatus());
      const auto pushed = worker->PushBlocks(
          step, [step](BlockId block) { return static_cast<float>(step) / (block + 3); });
      ASSERT_EQ(pushed.status(), absl::OkStatus());
    }
  }
  absl::Status TakeCheckpoint(const std::string& job) {
    if (checkpoints_ == nullptr) {
      const HelloRequest hello = Hello(0, job);
      CheckpointDriver::Options driver;
      driver.job = hello.job();
      driver.layout = *DecodeLayout(hello.layout());
      driver.job_id = hello.job_id();
      driver.addresses = {addresses_[0], addresses_[1]};
      checkpoints_ = std::make_unique<CheckpointDriver>(driver);
    }
    return checkpoints_->Take();
  }
  std::vector<std::vector<float>> GetValues(int k) {
    EXPECT_EQ(workers_[k]->ReadOnlyPull(), absl::OkStatus());
    return workers_[k]->values();
  }
  std::string said() {
    MutexLock lock(&mutex_);
    return said_;
  }
  std::string GetTrouble(int k) {
    PlainWorker observer(PlainChannel(addresses_[k]), Hello(k, kLog));
    const auto status = observer.Status();
    return status.ok() ? status->durability().trouble() : std::string(status.status().message());
  }

  // The servers use these members, so they are destroyed after the servers.
  Mutex mutex_;
  std::string said_ ABSL_GUARDED_BY(mutex_);
  SteadyClock clock_;
  std::unique_ptr<FaultyFileSystem> disks_[kServers];
  std::unique_ptr<Server> servers_[kServers];
  std::string addresses_[kServers];
  std::unique_ptr<PlainWorker> workers_[kServers];
  std::unique_ptr<CheckpointDriver> checkpoints_;
  bool continues_ = false;
  uint64_t incarnations_ = 0;
};

TEST_F(ServerBackupTest, NoAcknowledgedPushIsLostWithEitherDisk) {
  Begin(kLog);
  for (Step step = 1; step <= 3; ++step) PushAll(step);
  ASSERT_EQ(TakeCheckpoint(kLog), absl::OkStatus());
  for (Step step = 4; step <= 6; ++step) PushAll(step);
  Step last = 6;
  for (const int lost : {1, 0, 1}) {
    SCOPED_TRACE(absl::StrCat("loss of server ", lost, " after step ", last));
    const std::vector<std::vector<float>> values = GetValues(lost);
    Lose(lost);
    Start(lost);
    PlainWorker& worker = Greet(lost, kLog);
    const Restored& restored = worker.hello_reply().restored();
    EXPECT_TRUE(restored.from_log());
    EXPECT_EQ(restored.checkpoint(), 1u);
    EXPECT_THAT(restored.block_step(), Each(last));
    EXPECT_EQ(GetValues(lost), values);
    const auto repeated = worker.PushBlocks(last, [](BlockId) { return 0.0f; });
    ASSERT_TRUE(repeated.ok()) << repeated.status();
    EXPECT_EQ(GetValues(lost), values) << "another gradient for the same step changes nothing";
    EXPECT_THAT(said(), HasSubstr(absl::StrCat("server ", lost, " restored its files")));
    // Hello tells the other server the new address of this server. From then on this server stores
    // copies again, of old and of new changes.
    Greet(1 - lost, kLog);
    PushAll(++last);
  }
}

TEST_F(ServerBackupTest, RestoresFromTheCopiedLogWithoutACheckpoint) {
  Begin(kLog);
  for (Step step = 1; step <= 3; ++step) PushAll(step);
  const std::vector<std::vector<float>> values = GetValues(1);
  Lose(1);
  Start(1);
  const Restored restored = Greet(1, kLog).hello_reply().restored();
  EXPECT_TRUE(restored.from_log());
  EXPECT_EQ(restored.checkpoint(), 0u);
  EXPECT_EQ(GetValues(1), values);
}

TEST_F(ServerBackupTest, RestoresFromTheLastCompleteCheckpoint) {
  Begin(kCheckpoint);
  std::vector<std::vector<float>> values;
  for (Step step = 1; step <= 9; ++step) {
    PushAll(step);
    if (step % 2 == 1) continue;
    ASSERT_EQ(TakeCheckpoint(kCheckpoint), absl::OkStatus());
    values = GetValues(1);
  }
  const std::vector<std::string> newest = {"checkpoint-000000000003", "checkpoint-000000000004"};
  EXPECT_TRUE(Eventually([&] { return *disks_[0]->List("/ps/copies-of-7-1") == newest; }))
      << "older copies are removed, too";
  Lose(1);
  Start(1);
  const Restored restored = Greet(1, kCheckpoint).hello_reply().restored();
  EXPECT_FALSE(restored.from_log());
  EXPECT_EQ(restored.checkpoint(), 4u);
  EXPECT_THAT(restored.block_step(), Each(8));
  EXPECT_EQ(GetValues(1), values);
}

TEST_F(ServerBackupTest, ReplacesADamagedShardByItsCopy) {
  const std::string shard = "/checkpoint-000000000001/server-1-of-2.safetensors";
  const std::string path = "/ps" + shard;
  const std::string copy = "/ps/copies-of-7-1" + shard;
  Begin(kLog);
  for (Step step = 1; step <= 3; ++step) PushAll(step);
  ASSERT_EQ(TakeCheckpoint(kLog), absl::OkStatus());
  for (Step step = 4; step <= 5; ++step) PushAll(step);
  const std::vector<std::vector<float>> values = GetValues(1);
  const std::string whole = *ReadWholeFile(*disks_[1], path, 1 << 20);
  servers_[1] = nullptr;
  disks_[1]->FlipBit(path, static_cast<int64_t>(whole.size()) - 10, 3);
  Start(1);
  EXPECT_TRUE(Greet(1, kLog).hello_reply().restored().from_log());
  EXPECT_EQ(GetValues(1), values);
  EXPECT_EQ(*ReadWholeFile(*disks_[1], path, 1 << 20), whole);
  EXPECT_THAT(said(), HasSubstr(path + " was damaged, and is replaced by the copy on server 0"));

  // The copy is damaged in the same way, so it does not replace the shard.
  servers_[1] = nullptr;
  disks_[1]->FlipBit(path, static_cast<int64_t>(whole.size()) - 10, 3);
  disks_[0]->FlipBit(copy, static_cast<int64_t>(whole.size()) - 10, 3);
  Start(1);
  PlainWorker worker(PlainChannel(addresses_[1]), Hello(1, kLog));
  EXPECT_TRUE(absl::IsDataLoss(worker.Hello())) << worker.Hello();
  EXPECT_THAT(said(), HasSubstr("the copy there is damaged, too"));
}

TEST_F(ServerBackupTest, AFlippedBitInAnyFileIsHealedByTheCopy) {
  constexpr uint64_t kSeed = 20261129;
  std::printf("seed %lu\n", kSeed);
  uint64_t random = kSeed;
  Begin(kLog);
  Step step = 0;
  while (step < 3) PushAll(++step);
  ASSERT_EQ(TakeCheckpoint(kLog), absl::OkStatus());
  for (int k = 0; k < kServers; ++k) {
    const std::vector<std::string> folders = {"/ps/checkpoint-000000000001",
                                              absl::StrCat("/ps/log-", k, "-of-2")};
    std::vector<std::string> paths;
    for (const std::string& folder : folders) {
      const std::vector<std::string> names = *disks_[k]->List(folder);
      for (const std::string& name : names) {
        paths.push_back(absl::StrCat(folder, "/", name));
      }
    }
    EXPECT_GE(paths.size(), 3) << "a shard, a manifest and a log";
    for (const std::string& path : paths) {
      for (int i = 0; i < 2; ++i) {
        PushAll(++step);
        const std::vector<std::vector<float>> values = GetValues(k);
        servers_[k] = nullptr;
        const auto bytes = static_cast<uint64_t>((*disks_[k]->OpenForReading(path))->size());
        const auto at = static_cast<int64_t>(UniformBelow(random, bytes));
        SCOPED_TRACE(absl::StrCat("server ", k, ", ", path, ", byte ", at, " of ", bytes));
        disks_[k]->FlipBit(path, at, static_cast<int>(UniformBelow(random, 8)));
        Start(k);
        const Restored restored = Greet(k, kLog).hello_reply().restored();
        EXPECT_TRUE(restored.from_log());
        EXPECT_EQ(restored.checkpoint(), 1);
        ASSERT_EQ(GetValues(k), values);
        Greet(1 - k, kLog);  // tells the other server the new address
      }
    }
  }
}

TEST_F(ServerBackupTest, ReplacesADamagedLogByItsCopy) {
  const std::string folder = "/ps/log-1-of-2";
  Begin(kLog);
  Step step = 0;
  // Damages the first record of the log, then the last one.
  for (const bool last : {false, true}) {
    for (int i = 0; i < 5; ++i) PushAll(++step);
    const std::vector<std::vector<float>> values = GetValues(1);
    servers_[1] = nullptr;
    const std::vector<std::string> segments = *disks_[1]->List(folder);
    const std::string path = absl::StrCat(folder, "/", last ? segments.back() : segments.front());
    disks_[1]->FlipBit(path, last ? (*disks_[1]->OpenForReading(path))->size() - 20 : 200, 3);
    Start(1);
    EXPECT_TRUE(Greet(1, kLog).hello_reply().restored().from_log()) << last;
    EXPECT_EQ(GetValues(1), values) << last;
    EXPECT_THAT(said(),
                HasSubstr(folder + " was damaged, and is replaced by the copy on server 0"));
    Greet(0, kLog);  // tells server 0 the new address of server 1
    MutexLock lock(&mutex_);
    said_.clear();
  }
}

TEST_F(ServerBackupTest, AcknowledgesNoPushWhileThePeerIsAway) {
  Begin(kLog);
  PushAll(1);
  servers_[1] = nullptr;
  std::atomic<bool> answered{false};
  absl::Status outcome;
  std::thread pusher([&] {
    outcome = workers_[0]->Push(2, 1.0f).status();
    answered = true;
  });
  EXPECT_TRUE(Eventually([&] { return !GetTrouble(0).empty(); }));
  EXPECT_THAT(GetTrouble(0), HasSubstr(absl::StrCat("server 1 at ", addresses_[1])));
  EXPECT_FALSE(answered);
  // Server 1 restarts at another address. The worker's Hello reports it to server 0.
  Start(1);
  PlainWorker other(PlainChannel(addresses_[0]), Hello(0, kLog));
  EXPECT_EQ(other.Hello(), absl::OkStatus());
  EXPECT_TRUE(Eventually([&] { return answered.load(); }));
  pusher.join();
  EXPECT_EQ(outcome, absl::OkStatus());
  EXPECT_TRUE(Eventually([&] { return GetTrouble(0).empty(); }));
}

TEST_F(ServerBackupTest, StopsWhileThePeerIsAway) {
  Begin(kLog);
  servers_[1] = nullptr;
  absl::Status outcome;
  std::thread pusher([&] { outcome = workers_[0]->Push(1, 1.0f).status(); });
  EXPECT_TRUE(Eventually([&] { return !GetTrouble(0).empty(); }));
  servers_[0]->Stop();
  pusher.join();
  EXPECT_FALSE(outcome.ok());
}

TEST_F(ServerBackupTest, AnEmptyServerRefusesHelloUntilThePeerAnswers) {
  Begin(kLog);
  PushAll(1);
  Lose(1);
  servers_[0] = nullptr;
  Start(1);
  PlainWorker early(PlainChannel(addresses_[1]), Hello(1, kLog));
  const absl::Status refused = early.Hello();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is empty"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("server 0 at"));
  disks_[0]->KillProcesses();
  Start(0);
  EXPECT_TRUE(Greet(1, kLog).hello_reply().restored().from_log());
}

TEST_F(ServerBackupTest, Server0FetchesItsCopiesBeforeItStarts) {
  const std::string state = "/ps/coordinator.state";
  ASSERT_TRUE(disks_[0]->CreateDirectories("/ps").ok());
  ASSERT_TRUE(WriteFileAtomically(*disks_[0], state, "what the coordinator knows").ok());
  Begin(kLog);
  PushAll(1);
  const std::vector<std::vector<float>> values = GetValues(0);
  ASSERT_TRUE(Eventually(
      [&] { return disks_[1]->OpenForReading("/ps/copies-of-7-0/coordinator.state").ok(); }));
  Lose(0);
  // With a wrong address of the peer, the server fails instead of starting an empty job.
  EXPECT_TRUE(absl::IsUnavailable(TryStart(0, addresses_[0])));
  ASSERT_EQ(TryStart(0, addresses_[1]), absl::OkStatus());
  EXPECT_EQ(*ReadWholeFile(*disks_[0], state, 1000), "what the coordinator knows");
  EXPECT_TRUE(Greet(0, kLog).hello_reply().restored().from_log());
  EXPECT_EQ(GetValues(0), values);
  // An existing state file is kept.
  servers_[0] = nullptr;
  ASSERT_TRUE(WriteFileAtomically(*disks_[0], state, "more").ok());
  ASSERT_EQ(TryStart(0, addresses_[1]), absl::OkStatus());
  EXPECT_EQ(*ReadWholeFile(*disks_[0], state, 1000), "more");
  // Server 1 has lost its machine as well, so it has no copies of server 0.
  servers_[0] = nullptr;
  disks_[0] = std::make_unique<FaultyFileSystem>();
  Lose(1);
  Start(1);
  const absl::Status none = TryStart(0, addresses_[1]);
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("--copies_at"));
}

TEST_F(ServerBackupTest, RefusesAHelloThatMakesCopiesImpossible) {
  StartAll();
  const auto refusal = [&](const HelloRequest& hello) {
    PlainWorker worker(PlainChannel(addresses_[0]), hello);
    const absl::Status refused = worker.Hello();
    EXPECT_FALSE(refused.ok());
    return std::string(refused.message());
  };
  HelloRequest alone = Hello(0, kLog);
  alone.set_server_count(1);
  EXPECT_THAT(refusal(alone), HasSubstr("at least 2 servers"));
  HelloRequest silent = Hello(0, kLog);
  silent.clear_server_address();
  EXPECT_THAT(refusal(silent), HasSubstr("names the addresses of 0 servers"));
  HelloRequest forged = Hello(0, kLog);
  forged.set_server_index(-7);
  EXPECT_THAT(refusal(forged), HasSubstr("server_index is -7"));
  HelloRequest within = Hello(0, kLog);
  within.set_server_address(1, "");
  EXPECT_THAT(refusal(within), HasSubstr("no address for server 1"));
}

}  // namespace
}  // namespace torchps
