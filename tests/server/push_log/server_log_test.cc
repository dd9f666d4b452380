// Tests a whole server with durability LOG on a faulty disk.

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
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
#include "tests/testing/shared_worker.h"
#include "torchps/common/clock.h"
#include "torchps/server/server.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;
using Operation = FaultyFileSystem::Operation;
using Fault = FaultyFileSystem::Fault;

class ServerLogTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { PrepareGrpcProcess(); }

  void Start(const std::string& dir = "/ps") {
    Server::Options options;
    options.clock = &clock_;
    options.seed = ++incarnations_;
    options.files = &files_;
    options.dir = dir;
    options.log = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
    auto server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  // Simulates a power cut.
  void Crash(uint64_t seed) {
    files_.PowerOffAt(1);
    server_ = nullptr;
    files_.Crash(seed);
  }

  static HelloRequest Hello(int64_t elements, SlotId slot = 0) {
    JobHarness::Options model;
    model.trained = elements;
    model.averaged = 100;
    model.block_elements = elements / 5;
    model.job = "durability { level: LOG } optimizer { adam {} }";
    HelloRequest hello = JobHarness::Hello(model);
    hello.set_slot(slot);
    hello.set_incarnation(slot + 1);
    return hello;
  }

  // The disk is full while this is true.
  std::atomic<bool> full_{false};
  FaultyFileSystem files_;
  SteadyClock clock_;
  std::unique_ptr<Server> server_;
  uint64_t incarnations_ = 0;
};

TEST_F(ServerLogTest, RestoresTheSameBitsFromCheckpointAndLog) {
  Start();
  HelloRequest hello = Hello(50000);
  std::vector<std::vector<float>> values;
  std::vector<Version> versions;
  {
    SharedWorker near(PlainChannel(server_->address()), hello);
    ASSERT_TRUE(near.Hello().ok());
    ASSERT_TRUE(near.shares());
    ASSERT_TRUE(near.plain().Initialize(0.5f).ok());
    PlainWorker far(PlainChannel(server_->address()), Hello(50000, 1));
    ASSERT_TRUE(far.Hello().ok());
    CheckpointDriver::Options driver;
    driver.job = hello.job();
    driver.layout = *DecodeLayout(hello.layout());
    driver.job_id = hello.job_id();
    driver.addresses = {server_->address()};
    CheckpointDriver checkpoints(driver);
    for (Step step = 1; step <= 12; ++step) {
      ASSERT_TRUE(near.Pull(step - 1).ok());
      for (const BlockRange& block : near.plain().blocks()) {
        for (float& element : near.Gradient(block.id)) {
          element = static_cast<float>(step) / static_cast<float>(block.id + 3);
        }
      }
      const auto shared = near.Push(step);
      ASSERT_TRUE(shared.ok()) << shared.status();
      ASSERT_TRUE(far.Pull(step - 1).ok());
      const auto pushed = far.Push(step, -0.125f);
      ASSERT_TRUE(pushed.ok()) << pushed.status();
      if (step == 6) {
        ASSERT_EQ(checkpoints.Take(), absl::OkStatus());
        EXPECT_EQ(files_.List("/ps/log-0-of-1")->size(), 1u) << "earlier segments are removed";
      }
    }
    ASSERT_TRUE(far.ReadOnlyPull().ok());
    values = far.values();
    versions = far.versions();
    const auto status = far.Status();
    ASSERT_TRUE(status.ok());
    EXPECT_GT(status->durability().log_records(), 100u);
    EXPECT_GT(status->durability().log_syncs(), 0u);
  }
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Crash(seed);
    Start();
    PlainWorker worker(PlainChannel(server_->address()), Hello(50000, 1));
    ASSERT_TRUE(worker.Hello().ok());
    const Restored& restored = worker.hello_reply().restored();
    EXPECT_TRUE(restored.from_log());
    EXPECT_EQ(restored.checkpoint(), 1u);
    for (const Step step : restored.block_step()) EXPECT_EQ(step, 12);
    ASSERT_TRUE(worker.ReadOnlyPull().ok());
    EXPECT_EQ(worker.values(), values);
    EXPECT_EQ(worker.versions(), versions);
    EXPECT_GT(worker.Status()->durability().replayed(), 0u);
    // The restarted server also treats an acknowledged push as a duplicate.
    ASSERT_TRUE(worker.Push(12, -0.125f).ok());
    ASSERT_TRUE(worker.ReadOnlyPull().ok());
    EXPECT_EQ(worker.versions(), versions);
  }
}

TEST_F(ServerLogTest, StopsWhilePushesWaitForAFullDisk) {
  Start();
  files_.SetFaultHook([&](Operation operation, const std::string&) -> std::optional<Fault> {
    if (operation == Operation::kWrite && full_) return Fault{ENOSPC, 0};
    return std::nullopt;
  });
  // Two pushes of 20 MB each do not fit in the log's buffer, so the second one waits.
  constexpr int64_t kElements = 5000000;
  PlainWorker first(PlainChannel(server_->address()), Hello(kElements, 0));
  PlainWorker second(PlainChannel(server_->address()), Hello(kElements, 1));
  ASSERT_TRUE(first.Hello().ok());
  ASSERT_TRUE(second.Hello().ok());
  ASSERT_TRUE(first.Initialize(0).ok());
  ASSERT_TRUE(first.ReadOnlyPull().ok());
  const auto push_both = [&](Step step, const std::function<void()>& meanwhile) {
    std::atomic<int> answered{0};
    std::atomic<int> succeeded{0};
    std::vector<std::thread> threads;
    for (PlainWorker* worker : {&first, &second}) {
      threads.emplace_back([&, worker] {
        if (worker->Push(step, 1.0f).ok()) ++succeeded;
        ++answered;
      });
    }
    PlainWorker observer(PlainChannel(server_->address()), Hello(kElements, 0));
    EXPECT_TRUE(Eventually([&] {
      const auto status = observer.Status();
      return status.ok() && !status->durability().trouble().empty();
    }));
    EXPECT_EQ(answered, 0);
    meanwhile();
    for (std::thread& thread : threads) thread.join();
    return succeeded.load();
  };
  full_ = true;
  EXPECT_EQ(push_both(1, [&] { full_ = false; }), 2);
  full_ = true;
  EXPECT_EQ(push_both(2, [&] { server_->Stop(); }), 0);
  server_ = nullptr;
  full_ = false;
  files_.KillProcesses();
  Start();
  PlainWorker again(PlainChannel(server_->address()), Hello(kElements, 0));
  ASSERT_TRUE(again.Hello().ok());
  EXPECT_GE(again.hello_reply().last_step(), 1);
}

TEST_F(ServerLogTest, AServerWithoutADirectoryRefusesAJobWithALog) {
  Start(/*dir=*/"");
  PlainWorker worker(PlainChannel(server_->address()), Hello(100));
  const absl::Status refused = worker.Hello();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--dir"));
}

TEST_F(ServerLogTest, RefusesALogOfAnotherServerCount) {
  Start();
  {
    PlainWorker worker(PlainChannel(server_->address()), Hello(100));
    ASSERT_TRUE(worker.Hello().ok());
    ASSERT_TRUE(worker.Initialize(0).ok());
  }
  Crash(1);
  Start();
  HelloRequest hello = Hello(100);
  hello.set_server_count(2);
  PlainWorker worker(PlainChannel(server_->address()), hello);
  const absl::Status refused = worker.Hello();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("/ps/log-0-of-1"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("on 1 servers"));
}

TEST_F(ServerLogTest, RefusesADamagedLog) {
  Start();
  {
    PlainWorker worker(PlainChannel(server_->address()), Hello(100));
    ASSERT_TRUE(worker.Hello().ok());
    ASSERT_TRUE(worker.Initialize(0).ok());
    ASSERT_TRUE(worker.ReadOnlyPull().ok());
    for (Step step = 1; step <= 3; ++step) ASSERT_TRUE(worker.Push(step, 1.0f).ok());
  }
  Crash(1);
  files_.FlipBit("/ps/log-0-of-1/00000000000000000001.log", 150, 3);
  Start();
  PlainWorker worker(PlainChannel(server_->address()), Hello(100));
  const absl::Status refused = worker.Hello();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("00000000000000000001.log, byte 72"));
}

// Process A pauses, and B takes over the slot. The server restarts, and A calls Hello before B
// does.
TEST_F(ServerLogTest, DistinguishesPushesOfSuccessiveIncarnations) {
  HelloRequest hello = Hello(50000);
  hello.mutable_job()->mutable_optimizer()->mutable_sgd();
  const auto a = [&] {
    hello.set_incarnation(5);
    return std::make_unique<PlainWorker>(PlainChannel(server_->address()), hello);
  };
  const auto b = [&] {
    hello.set_incarnation(7);
    return std::make_unique<SharedWorker>(PlainChannel(server_->address()), hello);
  };
  const auto push = [](SharedWorker& worker, Step step, float value) {
    for (const BlockRange& block : worker.plain().blocks()) {
      if (block.averaged) continue;
      for (float& element : worker.Gradient(block.id)) element = value;
    }
    return worker.Push(step);
  };
  const auto value = [&] {
    PlainWorker reader(PlainChannel(server_->address()), Hello(50000));
    EXPECT_EQ(reader.ReadOnlyPull(), absl::OkStatus());
    return reader.values()[0][0];
  };
  Start();
  {
    const auto first = a();
    ASSERT_EQ(first->Hello(), absl::OkStatus());
    ASSERT_EQ(first->Initialize(0.0f), absl::OkStatus());
    ASSERT_EQ(first->Pull(0), absl::OkStatus());
    ASSERT_EQ(first->Push(1, 1.0f).status(), absl::OkStatus());
    const auto second = b();
    ASSERT_EQ(second->Hello(), absl::OkStatus());
    EXPECT_TRUE(absl::IsAborted(first->Push(2, 1.0f).status()));
  }
  Crash(1);
  Start();
  {
    const auto first = a();
    ASSERT_EQ(first->Hello(), absl::OkStatus()) << "not known to be replaced yet";
    ASSERT_EQ(first->Pull(1), absl::OkStatus());
    ASSERT_EQ(first->Push(2, 10.0f).status(), absl::OkStatus());
    const auto second = b();
    ASSERT_EQ(second->Hello(), absl::OkStatus());
    ASSERT_EQ(second->Pull(1), absl::OkStatus());
    const auto pushed = push(*second, 2, 100.0f);
    ASSERT_EQ(pushed.status(), absl::OkStatus());
    EXPECT_FALSE(pushed->block(0).duplicate());
    EXPECT_TRUE(absl::IsAborted(first->Push(2, 10.0f).status()));
    EXPECT_EQ(value(), -111.0f) << "acknowledged updates are present";
  }
  Crash(2);
  Start();
  EXPECT_TRUE(absl::IsAborted(a()->Hello())) << "the log contains the successor";
  const auto second = b();
  ASSERT_EQ(second->Hello(), absl::OkStatus());
  ASSERT_EQ(second->Pull(2), absl::OkStatus());
  ASSERT_EQ(push(*second, 2, 100.0f).status(), absl::OkStatus());
  EXPECT_EQ(value(), -111.0f) << "a repeat changes nothing";
}

}  // namespace
}  // namespace torchps
