// Tests a server and workers with shared memory: the results equal those of the network, and a
// worker that cannot share memory uses the network.

#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/shared_worker.h"
#include "torchps/common/clock.h"
#include "torchps/common/hash.h"
#include "torchps/server/server.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

class SharedMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef TORCHPS_TSAN
    // Server and test share memory through Debian's gRPC, which is not instrumented.
    GTEST_SKIP() << "ThreadSanitizer cannot see gRPC's synchronization";
#endif
  }

  std::unique_ptr<Server> StartServer() {
    Server::Options options;
    options.clock = &clock_;
    auto server = Server::Start(options);
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }

  static HelloRequest Hello(SlotId slot = 0, Incarnation incarnation = 1,
                            const std::string& job = "") {
    JobHarness::Options options;
    options.trained = 1000;
    options.averaged = 50;
    options.block_elements = 64;
    options.workers = 1;
    options.job = job;
    HelloRequest hello = JobHarness::Hello(options);
    hello.set_slot(slot);
    hello.set_incarnation(incarnation);
    return hello;
  }

  // Returns a worker that entered the job and initialized the values.
  std::unique_ptr<SharedWorker> Enter(Server& server, const HelloRequest& hello) {
    auto worker = std::make_unique<SharedWorker>(PlainChannel(server.address()), hello);
    EXPECT_EQ(worker->Hello(), absl::OkStatus());
    EXPECT_EQ(worker->plain().Initialize(1.0f), absl::OkStatus());
    return worker;
  }

  static void Fill(SharedWorker& worker, float value) {
    for (const BlockRange& block : worker.plain().blocks()) {
      for (float& element : worker.Gradient(block.id)) element = value;
    }
  }

  SteadyClock clock_;
};

TEST_F(SharedMemoryTest, MatchesTheNetworkBitForBit) {
  const std::string job =
      "optimizer { adam {} learning_rate: 0.1 weight_decay: 0.01 } consistency { mode: ";
  for (const char* mode : {"ASYNC }", "SYNC }"}) {
    const auto near = StartServer();
    const auto far = StartServer();
    const HelloRequest hello = Hello(0, 1, job + mode);
    const auto shared = Enter(*near, hello);
    ASSERT_TRUE(shared->shares());
    PlainWorker plain(PlainChannel(far->address()), hello);
    ASSERT_EQ(plain.Hello(), absl::OkStatus());
    ASSERT_EQ(plain.Initialize(1.0f), absl::OkStatus());
    uint64_t random = 3;
    for (Step step = 1; step <= 20; ++step) {
      ASSERT_EQ(shared->Pull(step - 1), absl::OkStatus());
      ASSERT_EQ(plain.Pull(step - 1), absl::OkStatus());
      ASSERT_EQ(shared->values(), plain.values()) << "before step " << step;
      ASSERT_EQ(shared->versions(), plain.versions());
      std::vector<PushFrame> frames;
      for (const BlockRange& block : plain.blocks()) {
        const absl::Span<float> gradient = shared->Gradient(block.id);
        for (float& element : gradient) {
          element = static_cast<float>(UnitDouble(SplitMix64(random))) - 0.5f;
        }
        PushFrame frame = plain.Frame(step, block.id, 0);
        frame.set_payload(gradient.data(), gradient.size() * sizeof(float));
        frames.push_back(frame);
      }
      const auto near_reply = shared->Push(step, /*blocks_in_frame=*/1 + step % 7);
      const auto far_reply = plain.Send(frames);
      ASSERT_TRUE(near_reply.ok()) << near_reply.status();
      ASSERT_TRUE(far_reply.ok()) << far_reply.status();
      ASSERT_EQ(near_reply->SerializeAsString(), far_reply->SerializeAsString());
    }
  }
}

TEST_F(SharedMemoryTest, StatusListsTheSharingSlots) {
  const auto server = StartServer();
  const auto shared = Enter(*server, Hello(0));
  PlainWorker plain(PlainChannel(server->address()), Hello(1));
  ASSERT_EQ(plain.Hello(), absl::OkStatus());
  const auto status = plain.Status();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_EQ(status->slot_size(), 2);
  EXPECT_TRUE(status->slot(0).shared_memory());
  EXPECT_FALSE(status->slot(1).shared_memory());
  ASSERT_EQ(shared->plain().Leave(), absl::OkStatus());
  EXPECT_FALSE(plain.Status()->slot(0).shared_memory());
}

TEST_F(SharedMemoryTest, ARepeatedPushIsADuplicate) {
  const auto server = StartServer();
  const auto worker = Enter(*server, Hello());
  Fill(*worker, 0.25f);
  ASSERT_TRUE(worker->Push(1).ok());
  const auto again = worker->Push(1, /*blocks_in_frame=*/3);
  ASSERT_TRUE(again.ok()) << again.status();
  for (const BlockVerdict& verdict : again->block()) EXPECT_TRUE(verdict.duplicate());
  ASSERT_EQ(worker->Pull(1), absl::OkStatus());
  EXPECT_EQ(worker->values()[0][0], 0.75f);
}

TEST_F(SharedMemoryTest, DeclinesAForgedOffer) {
  const auto server = StartServer();
  const auto real = Enter(*server, Hello(0));
  for (const bool wrong_nonce : {true, false}) {
    HelloRequest hello = Hello(1, wrong_nonce ? 2 : 3);
    *hello.mutable_shared_memory() = real->plain().hello().shared_memory();
    if (wrong_nonce) {
      hello.mutable_shared_memory()->set_nonce(1);
    } else {
      hello.mutable_shared_memory()->set_fd(1 << 20);
    }
    SharedWorker liar(PlainChannel(server->address()), hello);
    ASSERT_EQ(liar.Hello(), absl::OkStatus());
    EXPECT_FALSE(liar.shares());
    const auto pushed = liar.Push(1);
    EXPECT_EQ(pushed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(pushed.status().message()), HasSubstr("shares none"));
    // Pushes through the network still work.
    EXPECT_TRUE(liar.plain().Push(1, 0.0f).ok());
  }
}

TEST_F(SharedMemoryTest, AJobWithoutSharedMemoryUsesTheNetwork) {
  const auto server = StartServer();
  const auto worker = Enter(*server, Hello(0, 1, "wire { shared_memory: false }"));
  EXPECT_FALSE(worker->shares());
  PullRequest request = worker->plain().RequestPull(0);
  request.set_shared_memory(true);
  EXPECT_EQ(worker->plain().Pull(request).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(worker->plain().Pull(0), absl::OkStatus());
}

TEST_F(SharedMemoryTest, RejectsAFrameWithBlocksThatTheServerLacks) {
  const auto server = StartServer();
  const auto worker = Enter(*server, Hello());
  const auto blocks = static_cast<uint32_t>(worker->plain().blocks().size());
  for (const auto& [block, count] :
       std::vector<std::pair<BlockId, uint32_t>>{{0, blocks + 1},
                                                 {blocks - 1, 2},
                                                 {0, std::numeric_limits<uint32_t>::max()},
                                                 {1, std::numeric_limits<uint32_t>::max()}}) {
    const auto pushed = worker->plain().Send({worker->Frame(1, block, count)});
    EXPECT_EQ(pushed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(pushed.status().message()), HasSubstr("which this server does not"));
  }
  PushFrame beyond = worker->Frame(1, 0, 1);
  beyond.set_block(blocks);
  EXPECT_EQ(worker->plain().Send({beyond}).status().code(), absl::StatusCode::kInvalidArgument);
  // The push lacks a block, so it is refused.
  EXPECT_EQ(worker->plain().Send({worker->Frame(1, 0, blocks - 1)}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SharedMemoryTest, RejectsANonfiniteGradientByElementAndSegment) {
  const auto server = StartServer();
  const auto worker = Enter(*server, Hello());
  Fill(*worker, 0.5f);
  worker->Gradient(1)[3] = std::numeric_limits<float>::quiet_NaN();
  const auto pushed = worker->Push(1);
  EXPECT_EQ(pushed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(pushed.status().message()), HasSubstr("element 67 of segment 'w'"));
  ASSERT_EQ(worker->Pull(0), absl::OkStatus());
  EXPECT_EQ(worker->values()[0][0], 0.5f);
  EXPECT_EQ(worker->values()[1][0], 1.0f);
}

TEST_F(SharedMemoryTest, AbortsAReplacedIncarnation) {
  const auto server = StartServer();
  const auto old = Enter(*server, Hello(0, 1));
  SharedWorker successor(PlainChannel(server->address()), Hello(0, 2));
  ASSERT_EQ(successor.Hello(), absl::OkStatus());
  Fill(*old, 9.0f);
  EXPECT_EQ(old->Push(1).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(successor.Push(1).ok());
  ASSERT_EQ(successor.Pull(1), absl::OkStatus());
  EXPECT_EQ(successor.values()[0][0], 1.0f);
}

TEST_F(SharedMemoryTest, ASharedPullWaitsForTheStalenessBound) {
  const auto server = StartServer();
  const std::string job = "workers: 2 consistency { staleness_bound: 0 }";
  const auto fast = Enter(*server, Hello(0, 1, job));
  const auto slow = Enter(*server, Hello(1, 1, job));
  ASSERT_TRUE(fast->Push(1).ok());
  std::thread pull([&] { EXPECT_EQ(fast->Pull(1), absl::OkStatus()); });
  EXPECT_TRUE(Eventually([&] { return slow->plain().Status()->parked_now() == 1; }, kPatience));
  ASSERT_TRUE(slow->Push(1).ok());
  pull.join();
  EXPECT_EQ(fast->versions()[0], 2);
}

TEST_F(SharedMemoryTest, AWorkerWithSharedMemoryMayJoinOneWithout) {
  const auto server = StartServer();
  PlainWorker plain(PlainChannel(server->address()), Hello(0));
  ASSERT_EQ(plain.Hello(), absl::OkStatus());
  ASSERT_EQ(plain.Initialize(1.0f), absl::OkStatus());
  ASSERT_TRUE(plain.Push(1, 0.25f).ok());
  SharedWorker shared(PlainChannel(server->address()), Hello(1));
  ASSERT_EQ(shared.Hello(), absl::OkStatus());
  ASSERT_TRUE(shared.shares());
  ASSERT_TRUE(plain.Push(2, 0.25f).ok());
  ASSERT_EQ(plain.Pull(2), absl::OkStatus());
  ASSERT_EQ(shared.Pull(1), absl::OkStatus());
  EXPECT_EQ(shared.values(), plain.values());
  EXPECT_EQ(shared.versions(), plain.versions());
  EXPECT_EQ(shared.values()[0][0], 0.5f);
}

TEST_F(SharedMemoryTest, AbortsPullsBeforeInitialization) {
  const auto server = StartServer();
  SharedWorker worker(PlainChannel(server->address()), Hello());
  ASSERT_EQ(worker.Hello(), absl::OkStatus());
  EXPECT_EQ(worker.Pull(0).code(), absl::StatusCode::kAborted);
}

// One worker pushes while two others read. All elements of a gradient are equal, so a read must
// find equal elements in each block.
TEST_F(SharedMemoryTest, NeverReadsATornBlock) {
  const auto server = StartServer();
  HelloRequest hello = Hello(0, 1, "workers: 3 consistency { staleness_bound: -1 }");
  hello.mutable_job()->mutable_wire()->set_block_bytes(256 << 10);
  hello.mutable_layout()->mutable_segment(0)->set_shape(0, 4 * 65536);
  const auto pusher = Enter(*server, hello);
  Fill(*pusher, 0.5f);
  std::atomic<bool> enough{false};
  std::thread pushing([&] {
    for (Step step = 1; !enough.load(); ++step) ASSERT_TRUE(pusher->Push(step).ok());
  });
  std::vector<std::thread> readers;
  std::atomic<int> torn{0};
  std::atomic<int> changed{0};
  for (SlotId slot = 1; slot <= 2; ++slot) {
    readers.emplace_back([&, slot] {
      hello.set_slot(slot);
      SharedWorker reader(PlainChannel(server->address()), hello);
      ASSERT_EQ(reader.Hello(), absl::OkStatus());
      for (int pull = 0; pull < 200; ++pull) {
        const std::vector<Version> before = reader.versions();
        ASSERT_EQ(reader.Pull(0), absl::OkStatus());
        if (reader.versions() != before) ++changed;
        for (size_t block = 0; block < 4; ++block) {
          for (const float value : reader.values()[block]) {
            if (value != 1.0f - 0.5f * static_cast<float>(reader.versions()[block])) ++torn;
          }
        }
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  enough.store(true);
  pushing.join();
  EXPECT_EQ(torn.load(), 0);
  EXPECT_GT(changed.load(), 10);
}

}  // namespace
}  // namespace torchps
