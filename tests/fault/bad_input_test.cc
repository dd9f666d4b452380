// Tests that the server answers bad input with one sentence and the right status code, and that the
// running job is not affected.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "torchps/common/clock.h"
#include "torchps/common/hash.h"
#include "torchps/common/types.h"
#include "torchps/server/server.h"
#include "torchps/tools/base/tcp.h"
#include "torchps/transport/frame_codec.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(20);
// The gradients of bad pushes. Applying one of them would be visible in the values.
constexpr float kPoison = 1000.0f;
constexpr Incarnation kIncarnation = 5;

// Calls `method` with arbitrary bytes as the request, half-closes, and returns the status.
absl::Status CallWithBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const auto call = stub.PrepareCall(&context, method, &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  grpc::Slice slice(bytes);
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer reply;
  do {
    call->Read(&reply, nullptr);
    queue.Next(&tag, &ok);
  } while (ok);
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return FromGrpcStatus(status);
}

std::string RandomBytes(uint64_t& random, size_t size) {
  std::string bytes;
  while (bytes.size() < size) bytes.push_back(static_cast<char>(SplitMix64(random)));
  return bytes;
}

class BadInputTest : public ::testing::Test {
 protected:
  // A bad request: `act` sends it, as `peer` or as raw bytes. The server must answer with `code`
  // and a message that contains `words`.
  struct Case {
    std::string name;
    std::function<absl::Status(PlainWorker& peer)> act;
    absl::StatusCode code;
    std::vector<std::string> words;
  };

  void SetUp() override {
    Server::Options options;
    options.clock = &clock_;
    auto server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  HelloRequest GetHello(SlotId slot) const {
    JobHarness::Options model;
    model.trained = 48;
    model.averaged = 4;
    model.job = "consistency { staleness_bound: -1 } membership { lease_seconds: 600 }";
    HelloRequest hello = JobHarness::Hello(model);
    hello.set_slot(slot);
    hello.set_incarnation(kIncarnation);
    return hello;
  }

  std::unique_ptr<PlainWorker> GetWorker(SlotId slot) const {
    return std::make_unique<PlainWorker>(PlainChannel(server_->address()), GetHello(slot));
  }

  // Sends the peer's Hello after `change` modifies it.
  static absl::Status ChangedHello(PlainWorker& peer,
                                   const std::function<void(HelloRequest&)>& change) {
    HelloRequest hello = peer.hello();
    change(hello);
    grpc::ClientContext context;
    HelloReply reply;
    return FromGrpcStatus(peer.stub().Hello(&context, hello, &reply));
  }

  // Sends a whole push of kPoison gradients after `change` modifies the first frame.
  static absl::Status ChangedPush(PlainWorker& peer,
                                  const std::function<void(PushFrame&)>& change) {
    std::vector<PushFrame> frames;
    for (const BlockRange& block : peer.blocks()) {
      frames.push_back(peer.Frame(1, block.id, kPoison));
    }
    change(frames[0]);
    return peer.Send(frames).status();
  }

  static void SetElement(PushFrame& frame, size_t index, float value) {
    std::string payload = frame.payload();
    payload.replace(index * sizeof(float), sizeof(float), reinterpret_cast<const char*>(&value),
                    sizeof(float));
    frame.set_payload(payload);
  }

  void Expect(const Case& bad, const absl::Status& status) {
    SCOPED_TRACE(bad.name);
    std::printf("%-32s %s\n", bad.name.c_str(), status.ToString().c_str());
    EXPECT_EQ(status.code(), bad.code) << status;
    for (const std::string& word : bad.words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n"))) << "one sentence";
    EXPECT_LT(status.message().size(), 400) << "one sentence";
  }

  SteadyClock clock_;
  std::unique_ptr<Server> server_;
};

// Trains as slot 0 in a thread, with gradient 1. So the values show the number of steps.
class Healthy {
 public:
  explicit Healthy(std::unique_ptr<PlainWorker> worker)
      : worker_(std::move(worker)), thread_([this] { Run(); }) {}
  ~Healthy() { Stop(); }

  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  Step steps() const { return steps_; }
  bool failed() const { return failed_; }
  PlainWorker& worker() { return *worker_; }

 private:
  void Run() {
    while (!stop_) {
      const absl::Status pulled = worker_->Pull(steps_);
      const auto pushed = worker_->Push(steps_ + 1, 1.0f);
      if (!pulled.ok() || !pushed.ok()) {
        failed_ = true;
        ADD_FAILURE() << "the healthy worker failed: " << pulled << " and " << pushed.status();
        return;
      }
      ++steps_;
    }
  }

  const std::unique_ptr<PlainWorker> worker_;
  std::atomic<Step> steps_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

TEST_F(BadInputTest, RejectsBadRequestsWithoutDisturbingAHealthyWorker) {
  using absl::StatusCode;
  const std::vector<Case> cases = {
      // Hello.
      {"another protocol version",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) { hello.set_protocol_version(99); });
       },
       StatusCode::kFailedPrecondition,
       {absl::StrCat("protocol version ", kProtocolVersion), "99"}},
      {"an empty Hello",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) { hello.Clear(); });
       },
       StatusCode::kFailedPrecondition,
       {"protocol version"}},
      {"a layout of another shape",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) {
           hello.mutable_layout()->mutable_segment(0)->set_shape(0, 47);
         });
       },
       StatusCode::kFailedPrecondition,
       {"'w'", "48", "47", "the running job", "this worker"}},
      {"a layout of another name",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) {
           hello.mutable_layout()->mutable_segment(0)->set_name("weight");
         });
       },
       StatusCode::kFailedPrecondition,
       {"w", "weight"}},
      {"an invalid layout",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) {
           hello.mutable_layout()->mutable_segment(0)->set_shape(0, -48);
         });
       },
       StatusCode::kInvalidArgument,
       {"'w'", "-48"}},
      {"another learning rate",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) {
           hello.mutable_job()->mutable_optimizer()->set_learning_rate(0.25);
         });
       },
       StatusCode::kFailedPrecondition,
       {"optimizer.learning_rate", "0.25"}},
      {"another number of workers",
       [](PlainWorker& peer) {
         return ChangedHello(peer,
                             [](HelloRequest& hello) { hello.mutable_job()->set_workers(-3); });
       },
       StatusCode::kFailedPrecondition,
       {"workers", "-3"}},
      {"another job",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) { hello.set_job_id(8); });
       },
       StatusCode::kFailedPrecondition,
       {"already runs job 'job'", "number 7", "number 8"}},
      {"another position in --servers",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) {
           hello.set_server_index(1);
           hello.set_server_count(2);
         });
       },
       StatusCode::kFailedPrecondition,
       {"--servers", "number 0 of 1", "number 1 of 2"}},
      {"slot -1",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) { hello.set_slot(-1); });
       },
       StatusCode::kInvalidArgument,
       {"slot is -1", "4095"}},
      {"slot 4096",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) { hello.set_slot(4096); });
       },
       StatusCode::kInvalidArgument,
       {"slot is 4096", "4095"}},
      {"no incarnation",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) { hello.set_incarnation(0); });
       },
       StatusCode::kInvalidArgument,
       {"incarnation is 0"}},
      {"a Hello of an older incarnation",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) { hello.set_incarnation(4); });
       },
       StatusCode::kAborted,
       {"slot 1", "4", "5"}},

      // Push.
      {"one element too few",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) {
           frame.set_payload(frame.payload().substr(sizeof(float)));
         });
       },
       StatusCode::kInvalidArgument,
       {"block 0", "16 elements", "64 bytes", "60"}},
      {"a payload far too long",
       [](PlainWorker& peer) {
         return ChangedPush(peer,
                            [](PushFrame& frame) { frame.set_payload(std::string(8 << 20, 0)); });
       },
       StatusCode::kInvalidArgument,
       {"block 0", "16 elements", "8388608"}},
      {"no payload",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.clear_payload(); });
       },
       StatusCode::kInvalidArgument,
       {"block 0", "16 elements", "0"}},
      {"half an element",
       [](PlainWorker& peer) {
         return ChangedPush(peer,
                            [](PushFrame& frame) { frame.set_payload(frame.payload().substr(2)); });
       },
       StatusCode::kInvalidArgument,
       {"block 0", "64 bytes", "62"}},
      {"an unknown block",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.set_block(99); });
       },
       StatusCode::kInvalidArgument,
       {"block 99"}},
      {"not a number",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) {
           SetElement(frame, 3, std::numeric_limits<float>::quiet_NaN());
         });
       },
       StatusCode::kInvalidArgument,
       {"slot 1", "not finite", "step 1", "element 3", "'w'"}},
      {"minus infinity",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) {
           SetElement(frame, 15, -std::numeric_limits<float>::infinity());
         });
       },
       StatusCode::kInvalidArgument,
       {"not finite", "element 15"}},
      {"an older incarnation",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.set_incarnation(4); });
       },
       StatusCode::kAborted,
       {"incarnation 4 of slot 1", "Hello"}},
      {"an unassigned incarnation",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.set_incarnation(6); });
       },
       StatusCode::kAborted,
       {"incarnation 6 of slot 1", "Hello"}},
      {"another server incarnation",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.set_server_incarnation(12345); });
       },
       StatusCode::kAborted,
       {"restarted", "Hello"}},
      {"a push by slot -5",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.set_slot(-5); });
       },
       StatusCode::kInvalidArgument,
       {"slot is -5"}},
      {"a push by slot 2147483647",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.set_slot(2147483647); });
       },
       StatusCode::kInvalidArgument,
       {"slot is 2147483647"}},
      {"a slot that never said Hello",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.set_slot(77); });
       },
       StatusCode::kAborted,
       {"slot 77", "Hello"}},
      {"step -1",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.set_step(-1); });
       },
       StatusCode::kInvalidArgument,
       {"step is -1"}},
      {"a future version",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.set_base_version(1LL << 60); });
       },
       StatusCode::kInvalidArgument,
       {"base_version is 1152921504606846976"}},
      {"a negative version",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.set_base_version(-1); });
       },
       StatusCode::kInvalidArgument,
       {"base_version is -1"}},
      {"no samples",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.set_weight(0); });
       },
       StatusCode::kInvalidArgument,
       {"weight is 0"}},
      {"a missing table of absent elements",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) {
           frame.set_absent_runs(2);
           frame.set_payload(std::string(8, 1));
         });
       },
       StatusCode::kInvalidArgument,
       {"payload has 8 bytes", "table of 2 runs"}},
      {"absent elements beyond the block",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) {
           frame.set_absent_runs(1);
           frame.set_payload(std::string("\x0f\0\0\0\2\0\0\0", 8) + frame.payload());
         });
       },
       StatusCode::kInvalidArgument,
       {"block 0", "from element 15 to 17", "at 16 at the latest"}},
      {"a push that announces nothing",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.clear_block_count(); });
       },
       StatusCode::kInvalidArgument,
       {"announced with 0 blocks", "expected 1 to 4"}},
      {"a push that announces too many blocks",
       [](PlainWorker& peer) {
         return ChangedPush(peer, [](PushFrame& frame) { frame.set_block_count(5); });
       },
       StatusCode::kInvalidArgument,
       {"announced with 5 blocks", "expected 1 to 4"}},
      {"a part that never ends",
       [](PlainWorker& peer) {
         PushFrame frame = peer.Frame(1, 0, kPoison);
         frame.set_part(true);
         frame.set_block_count(1u << 31);
         return peer.Send(std::vector<PushFrame>(100, frame)).status();
       },
       StatusCode::kInvalidArgument,
       {"announced with 2147483648 blocks"}},
      {"an empty push",
       [](PlainWorker& peer) { return peer.Send({}).status(); },
       StatusCode::kInvalidArgument,
       {"without a frame"}},
      // In the next three cases the server may apply some frames of a push before it refuses the
      // rest. These frames carry zero gradients.
      {"fewer blocks than announced",
       [](PlainWorker& peer) { return peer.Send({peer.Frame(1, 0, 0.0f)}).status(); },
       StatusCode::kInvalidArgument,
       {"announced with 4 blocks", "after 1"}},
      {"a repeated block and a missing block",
       [](PlainWorker& peer) {
         const PushFrame frame = peer.Frame(2, 0, 0.0f);
         return peer.Send({frame, frame, frame, frame}).status();
       },
       StatusCode::kInvalidArgument,
       {"step 2", "slot 1", "3 of 4"}},
      {"two steps in one push",
       [](PlainWorker& peer) {
         return peer.Send({peer.Frame(3, 0, 0.0f), peer.Frame(4, 1, kPoison)}).status();
       },
       StatusCode::kInvalidArgument,
       {"step 3", "step 4"}},
      {"a message above the size limit",
       [this](PlainWorker&) {
         return CallWithBytes(PlainChannel(server_->address()), "/torchps.ParameterService/Push",
                              std::string(kMaxFrameBytes + 1, 'x'));
       },
       StatusCode::kResourceExhausted,
       {}},

      // Pull and other calls.
      {"a pull of an older incarnation",
       [](PlainWorker& peer) {
         PullRequest request = peer.RequestPull(0);
         request.set_incarnation(4);
         return peer.Pull(request);
       },
       StatusCode::kAborted,
       {"incarnation 4 of slot 1"}},
      {"a pull by slot -1",
       [](PlainWorker& peer) {
         PullRequest request = peer.RequestPull(0);
         request.set_slot(-1);
         return peer.Pull(request);
       },
       StatusCode::kAborted,
       {"slot -1"}},
      {"a pull for another server incarnation",
       [](PlainWorker& peer) {
         PullRequest request = peer.RequestPull(0);
         request.set_server_incarnation(12345);
         return peer.Pull(request);
       },
       StatusCode::kAborted,
       {"restarted"}},
      {"a pull that is not a PullRequest",
       [this](PlainWorker&) {
         return CallWithBytes(PlainChannel(server_->address()), "/torchps.ParameterService/Pull",
                              "\xff\xff\xff");
       },
       StatusCode::kInvalidArgument,
       {"PullRequest"}},
      {"a Hello that is not a HelloRequest",
       [this](PlainWorker&) {
         return CallWithBytes(PlainChannel(server_->address()), "/torchps.ParameterService/Hello",
                              "\xff\xff\xff");
       },
       StatusCode::kInternal,
       {"parse"}},
      {"a message of the maximum size without content",
       [this](PlainWorker&) {
         return CallWithBytes(PlainChannel(server_->address()), "/torchps.ParameterService/Push",
                              std::string(kMaxFrameBytes, 'x'));
       },
       StatusCode::kInvalidArgument,
       {}},

      // Checkpoint calls on a server without a directory.
      {"a shard without a directory",
       [](PlainWorker& peer) {
         grpc::ClientContext context;
         WriteShardRequest request;
         request.set_checkpoint(1);
         request.set_job_id(peer.hello().job_id());
         ShardInfo reply;
         return FromGrpcStatus(peer.stub().WriteShard(&context, request, &reply));
       },
       StatusCode::kFailedPrecondition,
       {"no directory", "--dir"}},
      {"a shard of another job",
       [](PlainWorker& peer) {
         grpc::ClientContext context;
         WriteShardRequest request;
         request.set_checkpoint(1);
         request.set_job_id(peer.hello().job_id() + 1);
         ShardInfo reply;
         return FromGrpcStatus(peer.stub().WriteShard(&context, request, &reply));
       },
       StatusCode::kFailedPrecondition,
       {"another job: 'job', number 7", "number 8"}},
      {"a commit with invalid fields",
       [](PlainWorker& peer) {
         grpc::ClientContext context;
         CommitCheckpointRequest request;
         request.set_checkpoint(uint64_t{1} << 63);
         request.set_job_id(peer.hello().job_id());
         request.set_manifest("../../etc/passwd");
         request.add_keep(0);
         CommitCheckpointReply reply;
         return FromGrpcStatus(peer.stub().CommitCheckpoint(&context, request, &reply));
       },
       StatusCode::kFailedPrecondition,
       {"--dir"}},
      {"a WriteShard that is not a WriteShardRequest",
       [this](PlainWorker&) {
         return CallWithBytes(PlainChannel(server_->address()),
                              "/torchps.ParameterService/WriteShard", "\xff\xff\xff");
       },
       StatusCode::kInternal,
       {"parse"}},
      {"a CommitCheckpoint that is not a CommitCheckpointRequest",
       [this](PlainWorker&) {
         return CallWithBytes(PlainChannel(server_->address()),
                              "/torchps.ParameterService/CommitCheckpoint", "\xff\xff\xff");
       },
       StatusCode::kInternal,
       {"parse"}},
      {"a Shutdown that is not a ShutdownRequest",
       [this](PlainWorker&) {
         return CallWithBytes(PlainChannel(server_->address()),
                              "/torchps.ParameterService/Shutdown", "\xff\xff\xff");
       },
       StatusCode::kInternal,
       {"parse"}},
      {"a checkpoint without a job",
       [this](PlainWorker&) {
         return CallWithBytes(PlainChannel(server_->address()),
                              "/torchps.Coordinator/TakeCheckpoint", "");
       },
       StatusCode::kFailedPrecondition,
       {}},
      {"a Join that is not a JoinRequest",
       [this](PlainWorker&) {
         return CallWithBytes(PlainChannel(server_->address()), "/torchps.Coordinator/Join",
                              "\xff\xff\xff");
       },
       StatusCode::kInternal,
       {"parse"}},
      {"an unknown method",
       [this](PlainWorker&) {
         return CallWithBytes(PlainChannel(server_->address()), "/torchps.ParameterService/Sing",
                              "");
       },
       StatusCode::kUnimplemented,
       {}},
  };

  auto first = GetWorker(0);
  ASSERT_TRUE(first->Hello().ok());
  ASSERT_TRUE(first->Initialize(0).ok());
  auto peer = GetWorker(1);
  ASSERT_TRUE(peer->Hello().ok());
  ASSERT_TRUE(peer->ReadOnlyPull().ok());
  Healthy healthy(std::move(first));
  for (const Case& bad : cases) {
    const Step before = healthy.steps();
    Expect(bad, bad.act(*peer));
    ASSERT_TRUE(Eventually([&] { return healthy.steps() > before || healthy.failed(); }, kPatience))
        << bad.name << " stopped the healthy worker";
    ASSERT_FALSE(healthy.failed()) << bad.name;
  }

  // Sends frames of random bytes. Some parse as headers of a push to another server incarnation,
  // which the server answers with ABORTED.
  uint64_t random = 20240609;
  std::printf("seed %lu\n", random);
  const auto channel = PlainChannel(server_->address());
  for (int i = 0; i < 200; ++i) {
    const std::string bytes = RandomBytes(random, UniformBelow(random, 400));
    EXPECT_THAT(CallWithBytes(channel, "/torchps.ParameterService/Push", bytes).code(),
                AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kAborted));
  }

  healthy.Stop();
  const auto status = healthy.worker().Status(/*include_ledger=*/true);
  ASSERT_TRUE(status.ok());
  size_t rows = 0;
  for (const LedgerEntryStatus& row : status->ledger()) {
    if (row.slot() != 0) continue;
    ++rows;
    EXPECT_EQ(row.applied(), healthy.steps());
    EXPECT_EQ(row.last_step(), healthy.steps());
  }
  EXPECT_EQ(rows, healthy.worker().blocks().size());
  ASSERT_TRUE(healthy.worker().ReadOnlyPull().ok());
  for (const BlockRange& block : healthy.worker().blocks()) {
    if (block.averaged) continue;
    for (const float value : healthy.worker().values()[block.id]) {
      ASSERT_EQ(value, -static_cast<float>(healthy.steps())) << "block " << block.id;
    }
  }
  std::printf("the healthy worker pushed %ld steps during the test\n", healthy.steps());
}

TEST_F(BadInputTest, DropsOtherProtocolsWhileTrainingContinues) {
  auto first = GetWorker(0);
  ASSERT_TRUE(first->Hello().ok());
  ASSERT_TRUE(first->Initialize(0).ok());
  Healthy healthy(std::move(first));

  uint64_t random = 20240610;
  std::printf("seed %lu\n", random);
  const std::string preface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  const std::vector<std::pair<std::string, std::string>> talks = {
      {"HTTP/1.1", "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"},
      {"TLS",
       std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + RandomBytes(random, 508)},
      {"random bytes", RandomBytes(random, 100000)},
      {"random bytes as HTTP/2 frames", preface + settings + RandomBytes(random, 100000)},
      {"a frame of 16 MiB",
       preface + settings + std::string("\xff\xff\xff\0\0\0\0\0\1", 9) + std::string(1 << 20, 'x')},
  };
  // Peers that are silent, or become silent, stay connected during the test.
  std::vector<FileDescriptor> silent;
  for (const std::string& beginning : {std::string(), preface.substr(0, 7), preface + settings}) {
    auto socket = ConnectTcp(server_->address());
    ASSERT_TRUE(socket.ok()) << socket.status();
    ASSERT_TRUE(WriteAll(*socket, beginning).ok());
    silent.push_back(*std::move(socket));
  }
  for (const auto& [name, bytes] : talks) {
    auto socket = ConnectTcp(server_->address());
    ASSERT_TRUE(socket.ok()) << socket.status();
    // The server may close the connection before it reads all bytes.
    (void)WriteAll(*socket, bytes);
    EXPECT_NE(ReadUntilEnd(*socket, kPatience).kind, TcpEnd::kOpen) << name;
    const Step before = healthy.steps();
    ASSERT_TRUE(Eventually([&] { return healthy.steps() > before; }, kPatience)) << name;
  }
  healthy.Stop();
  EXPECT_FALSE(healthy.failed());
  const auto status = healthy.worker().Status();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->min_version(), healthy.steps());
  EXPECT_EQ(status->max_version(), healthy.steps());
}

TEST_F(BadInputTest, AcceptsAJobAfterRejectingBadHellos) {
  const std::vector<Case> cases = {
      {"a job without a learning rate",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) {
           hello.mutable_job()->mutable_optimizer()->set_learning_rate(0);
         });
       },
       absl::StatusCode::kInvalidArgument,
       {"optimizer.learning_rate"}},
      {"no job and no layout",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) {
           hello.clear_job();
           hello.clear_layout();
         });
       },
       absl::StatusCode::kInvalidArgument,
       {}},
      {"no segment",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) { hello.clear_layout(); });
       },
       absl::StatusCode::kInvalidArgument,
       {}},
      {"server 3 of 2",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) {
           hello.set_server_index(3);
           hello.set_server_count(2);
         });
       },
       absl::StatusCode::kInvalidArgument,
       {"server_index is 3"}},
      {"an unknown group",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) {
           hello.mutable_layout()->mutable_segment(0)->set_group(4);
         });
       },
       absl::StatusCode::kInvalidArgument,
       {"w", "4"}},
      {"a slot out of range",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) { hello.set_slot(1 << 20); });
       },
       absl::StatusCode::kInvalidArgument,
       {"slot is 1048576"}},
      {"more than this machine's memory",
       [](PlainWorker& peer) {
         return ChangedHello(peer, [](HelloRequest& hello) {
           hello.mutable_layout()->mutable_segment(0)->set_shape(0, int64_t{1} << 39);
           hello.mutable_job()->mutable_wire()->set_block_bytes(64 << 20);
         });
       },
       absl::StatusCode::kResourceExhausted,
       {"memory"}},
      {"a push before any Hello",
       [](PlainWorker& peer) { return peer.Push(1, 1.0f).status(); },
       absl::StatusCode::kAborted,
       {"Hello"}},
      {"a read-only pull before any Hello",
       [](PlainWorker& peer) { return peer.ReadOnlyPull(); },
       absl::StatusCode::kFailedPrecondition,
       {"no values"}},
  };
  const auto peer = GetWorker(0);
  for (const Case& bad : cases) Expect(bad, bad.act(*peer));
  ASSERT_TRUE(peer->Hello().ok()) << "the server must not adopt a rejected job";
  ASSERT_TRUE(peer->Initialize(3).ok());
  ASSERT_TRUE(peer->Pull(0).ok());
  ASSERT_TRUE(peer->Push(1, 1.0f).ok());
  ASSERT_TRUE(peer->Pull(1).ok());
  EXPECT_EQ(peer->values()[0][0], 2.0f);
}

}  // namespace
}  // namespace torchps
