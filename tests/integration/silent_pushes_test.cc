// Tests pushes that begin and then stay silent, as if the worker hangs while the connection stays
// open. torchps/server/parked/push_budget.h describes the three shares of the memory for frames. A
// silent push keeps bytes of the working share until another push needs them. A connection is
// unverified until the current process of a slot has used it. Pushes on it get no bytes of the
// working share.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/plain_worker.h"
#include "torchps/common/types.h"
#include "torchps/server/server.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBlockElements = 4096;
constexpr int64_t kBlockBytes = kBlockElements * sizeof(float);
constexpr int kBlocks = 4;
// Number of frames in the working share. The stalled share holds half as many, for silent pushes
// whose bytes another push needed.
constexpr int kShares = 16;
// Number of frames in the unverified share.
constexpr int kUnverifiedShares = 2;
constexpr absl::Duration kLease = absl::Seconds(10);
// After kSilence a push counts as silent. kPatience is longer than the lease and the time for which
// a silent push may block other pushes.
constexpr absl::Duration kSilence = absl::Milliseconds(1001);
constexpr absl::Duration kPatience = absl::Milliseconds(10100);

// Holds a Push that stays silent after the first `frames` frames, on the worker's connection.
class SilentPush {
 public:
  explicit SilentPush(PlainWorker& worker, int frames = 0)
      : stream_(worker.stub().Push(&context_, &reply_)) {
    while (written_ < frames) Write(worker);
  }
  ~SilentPush() {
    context_.TryCancel();
    if (!ended_) stream_->Finish();
  }

  // Sends the remaining frames.
  absl::Status GoOn(PlainWorker& worker) {
    while (written_ < kBlocks) Write(worker);
    stream_->WritesDone();
    return Await();
  }
  // Waits for the end of the push and returns the status.
  absl::Status Await() {
    ended_ = true;
    return FromGrpcStatus(stream_->Finish());
  }

 private:
  void Write(const PlainWorker& worker) {
    EXPECT_TRUE(stream_->Write(worker.Frame(/*step=*/1, written_++, 1.0f)));
  }

  grpc::ClientContext context_;
  PushReply reply_;
  const std::unique_ptr<grpc::ClientWriter<PushFrame>> stream_;
  int written_ = 0;
  bool ended_ = false;
};

class SilentPushesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Server::Options options;
    options.clock = &clock_;
    options.receive_bytes = kShares * kBlockBytes;
    auto server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  // Returns a worker on a separate connection.
  std::unique_ptr<PlainWorker> Worker(SlotId slot) {
    JobHarness::Options options;
    options.trained = kBlocks * kBlockElements;
    options.block_elements = kBlockElements;
    options.workers = 64;
    options.job = absl::StrCat("consistency { staleness_bound: -1 } membership { lease_seconds: ",
                               absl::ToDoubleSeconds(kLease), " }");
    HelloRequest hello = JobHarness::Hello(options);
    hello.set_slot(slot);
    return std::make_unique<PlainWorker>(PlainChannel(server_->address()), hello);
  }
  // Returns a worker after Hello.
  std::unique_ptr<PlainWorker> Enter(SlotId slot) {
    auto worker = Worker(slot);
    EXPECT_TRUE(worker->Hello().ok());
    if (slot == 0) {
      EXPECT_TRUE(worker->Initialize(0).ok());
    }
    return worker;
  }

  // Returns another, still unused connection of that worker's process.
  std::unique_ptr<PlainWorker> ElsewhereAs(const PlainWorker& worker) {
    return std::make_unique<PlainWorker>(PlainChannel(server_->address()), worker.hello());
  }
  // Opens `count` silent pushes on separate connections and waits until they fill the unverified
  // share.
  void OpenUnverifiedPushes(int count) {
    ASSERT_TRUE(Eventually([&] { return Held() == 0; }));
    for (int i = 0; i < count; ++i) {
      unverified_clients_.push_back(Worker(/*slot=*/0));
      unverified_pushes_.push_back(std::make_unique<SilentPush>(*unverified_clients_.back()));
      // The server answers this call only after it received the earlier Push.
      ASSERT_TRUE(unverified_clients_.back()->Status().ok());
    }
    ASSERT_TRUE(Eventually([&] { return Held() == kUnverifiedShares * kBlockBytes; }));
  }

  int64_t Held() {
    const absl::StatusOr<ServerStatus> status = observer_->Status();
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? static_cast<int64_t>(status->frame_bytes_held()) : -1;
  }

  ManualClock clock_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<PlainWorker> observer_;
  std::vector<std::unique_ptr<PlainWorker>> unverified_clients_;
  std::vector<std::unique_ptr<SilentPush>> unverified_pushes_;
};

// Runs a push on a separate thread.
class OtherPush {
 public:
  explicit OtherPush(std::unique_ptr<PlainWorker> worker)
      : worker_(std::move(worker)), thread_([this] {
          status_ = worker_->Push(/*step=*/1, 1.0f).status();
          is_through_ = true;
        }) {}
  ~OtherPush() { thread_.join(); }

  bool is_through() const { return is_through_; }
  absl::Status status() const { return is_through_ ? status_ : absl::UnknownError("under way"); }

 private:
  const std::unique_ptr<PlainWorker> worker_;
  absl::Status status_;
  std::atomic<bool> is_through_{false};
  std::thread thread_;
};

TEST_F(SilentPushesTest, SilentPushesDoNotBlockAnotherSlotsPush) {
  observer_ = Enter(0);
  std::vector<std::unique_ptr<PlainWorker>> workers;
  std::vector<std::unique_ptr<SilentPush>> pushes;
  for (SlotId slot = 1; slot <= kShares; ++slot) {
    workers.push_back(Enter(slot));
    pushes.push_back(std::make_unique<SilentPush>(*workers.back()));
  }
  ASSERT_TRUE(Eventually([&] { return Held() == kShares * kBlockBytes; }));
  const OtherPush other(Enter(kShares + 1));
  EXPECT_FALSE(other.is_through());
  clock_.Advance(kSilence);
  ASSERT_TRUE(Eventually([&] { return other.is_through(); }));
  EXPECT_TRUE(other.status().ok()) << other.status();
  EXPECT_TRUE(Eventually([&] { return Held() == kShares * kBlockBytes; }));
  // All silent pushes can continue, also those whose bytes moved to the stalled share.
  for (int i = 0; i < kShares; ++i) {
    const absl::Status status = pushes[i]->GoOn(*workers[i]);
    EXPECT_TRUE(status.ok()) << i << ": " << status;
  }
  EXPECT_TRUE(Eventually([&] { return Held() == 0; }));
}

TEST_F(SilentPushesTest, ASilentPushKeepsItsBytesWhileNoOtherPushNeedsThem) {
  observer_ = Enter(0);
  const auto worker = Enter(1);
  SilentPush push(*worker, /*frames=*/1);
  ASSERT_TRUE(Eventually([&] { return Held() == kBlockBytes; }));
  for (int i = 0; i < 30; ++i) {
    clock_.Advance(absl::Seconds(1));
    ASSERT_TRUE(worker->Renew().ok());
    ASSERT_TRUE(observer_->Renew().ok());
  }
  EXPECT_EQ(Held(), kBlockBytes);
  EXPECT_TRUE(push.GoOn(*worker).ok());
}

TEST_F(SilentPushesTest, SilentPushesAboveTheStalledShareEndAfterALease) {
  observer_ = Enter(0);
  constexpr int kCrowd = kShares + kShares / 2 + 2;
  std::vector<std::unique_ptr<PlainWorker>> workers;
  std::vector<std::unique_ptr<SilentPush>> pushes;
  for (int i = 0; i < kCrowd; ++i) {
    workers.push_back(Enter(/*slot=*/2 + i));
    pushes.push_back(std::make_unique<SilentPush>(*workers.back()));
  }
  ASSERT_TRUE(Eventually([&] { return Held() == kShares * kBlockBytes; }));
  const auto renewing = Enter(1);
  const OtherPush other(Enter(1));
  clock_.Advance(kSilence);
  ASSERT_TRUE(Eventually([&] { return Held() == (kShares + kShares / 2) * kBlockBytes; }));
  EXPECT_FALSE(other.is_through());
  const absl::Duration before = clock_.Now();
  while (!other.is_through() && clock_.Now() - before < 2 * kPatience) {
    clock_.Advance(absl::Milliseconds(100));
    ASSERT_TRUE(renewing->Renew().ok());
    ASSERT_TRUE(observer_->Renew().ok());
  }
  ASSERT_TRUE(Eventually([&] { return other.is_through(); }));
  EXPECT_TRUE(other.status().ok()) << other.status();
  const absl::Status ended = pushes.front()->Await();
  EXPECT_TRUE(absl::IsDeadlineExceeded(ended)) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("sent nothing for "));
  pushes.clear();
  EXPECT_TRUE(Eventually([&] { return Held() == 0; }));
}

TEST_F(SilentPushesTest, OnlyOneSilentPushPerConnectionMayWait) {
  observer_ = Enter(0);
  const auto worker = Enter(1);
  constexpr int kInLine = 4;
  std::vector<std::unique_ptr<SilentPush>> pushes;
  for (int i = 0; i < kShares + kInLine; ++i) {
    pushes.push_back(std::make_unique<SilentPush>(*worker));
  }
  ASSERT_TRUE(Eventually([&] { return Held() == kShares * kBlockBytes; }));
  const OtherPush other(Enter(2));
  clock_.Advance(kSilence);
  ASSERT_TRUE(Eventually([&] { return other.is_through(); }));
  EXPECT_TRUE(other.status().ok()) << other.status();
  // One silent push of the connection keeps its bytes, in the stalled share. The other pushes that
  // held bytes ended, and the kInLine pushes behind them got bytes.
  EXPECT_TRUE(Eventually([&] { return Held() == (1 + kInLine) * kBlockBytes; }));
  pushes.clear();
  EXPECT_TRUE(Eventually([&] { return Held() == 0; }));
}

// Covers the gap between a lease and the connection's keepalive: a process that answers pings may
// have lost its lease.
TEST_F(SilentPushesTest, APushEndsWithItsSlotsLease) {
  observer_ = Enter(0);
  const auto worker = Enter(1);
  SilentPush push(*worker, /*frames=*/1);
  ASSERT_TRUE(Eventually([&] { return Held() == kBlockBytes; }));
  clock_.Advance(kLease / 2);
  ASSERT_TRUE(observer_->Renew().ok());
  clock_.Advance(kLease / 2 + absl::Milliseconds(1));
  const absl::Status ended = push.Await();
  EXPECT_TRUE(absl::IsAborted(ended)) << ended;
  EXPECT_TRUE(Eventually([&] { return Held() == 0; }));
}

TEST_F(SilentPushesTest, PushesOnUnverifiedConnectionsDoNotDelayAWorker) {
  observer_ = Enter(0);
  ASSERT_NO_FATAL_FAILURE(OpenUnverifiedPushes(40));
  // The clock does not advance, so timeouts do not expire.
  const auto worker = Enter(1);
  for (Step step = 1; step <= 3; ++step) {
    const auto pushed = worker->Push(step, 1.0f);
    ASSERT_TRUE(pushed.ok()) << pushed.status();
  }
  unverified_pushes_.clear();
  EXPECT_TRUE(Eventually([&] { return Held() == 0; }));
}

TEST_F(SilentPushesTest, APushAboveTheUnverifiedShareIsRefusedUntilHello) {
  observer_ = Enter(0);
  ASSERT_NO_FATAL_FAILURE(OpenUnverifiedPushes(kUnverifiedShares));
  const auto worker = Worker(1);
  const auto refused = worker->Push(/*step=*/1, 1.0f);
  EXPECT_TRUE(absl::IsAborted(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("say Hello on it"));
  ASSERT_TRUE(worker->Hello().ok());
  const auto pushed = worker->Push(/*step=*/1, 1.0f);
  EXPECT_TRUE(pushed.ok()) << pushed.status();
}

// After a reconnect, the first call of a worker can be a pull, a push or a renewal, so each must
// verify the connection.
TEST_F(SilentPushesTest, APullPushOrRenewalVerifiesAConnection) {
  observer_ = Enter(0);
  const auto worker = Enter(1);
  const auto pulling = ElsewhereAs(*worker);
  ASSERT_TRUE(pulling->Pull(worker->RequestPull(/*clock=*/0)).ok());
  const auto pushing = ElsewhereAs(*worker);
  const auto frames = [&](Step step) {
    std::vector<PushFrame> all;
    for (BlockId block = 0; block < kBlocks; ++block) {
      all.push_back(worker->Frame(step, block, 1.0f));
    }
    return all;
  };
  ASSERT_TRUE(pushing->Send(frames(1)).ok());
  const auto renewing = ElsewhereAs(*worker);
  grpc::ClientContext context;
  RenewRequest renew;
  renew.set_slot(1);
  renew.set_incarnation(worker->hello().incarnation());
  renew.set_server_incarnation(worker->server_incarnation());
  RenewReply renewed;
  ASSERT_TRUE(renewing->stub().Renew(&context, renew, &renewed).ok());

  ASSERT_NO_FATAL_FAILURE(OpenUnverifiedPushes(kUnverifiedShares));
  EXPECT_TRUE(absl::IsAborted(ElsewhereAs(*worker)->Send(frames(2)).status()));
  Step step = 1;
  for (PlainWorker* const known : {pulling.get(), pushing.get(), renewing.get()}) {
    const auto pushed = known->Send(frames(++step));
    EXPECT_TRUE(pushed.ok()) << "step " << step << ": " << pushed.status();
  }
}

TEST_F(SilentPushesTest, CallsOfAnUnknownIncarnationDoNotVerifyAConnection) {
  observer_ = Enter(0);
  const auto worker = Enter(1);
  const auto unverified = ElsewhereAs(*worker);
  PullRequest pull = worker->RequestPull(/*clock=*/0);
  pull.set_incarnation(pull.incarnation() + 1);
  EXPECT_TRUE(absl::IsAborted(unverified->Pull(pull)));
  PushFrame frame = worker->Frame(/*step=*/1, /*block=*/0, 1.0f);
  frame.set_incarnation(frame.incarnation() + 1);
  EXPECT_TRUE(absl::IsAborted(unverified->Send({frame}).status()));
  EXPECT_TRUE(unverified->ReadOnlyPull().ok()) << "a read-only pull needs no Hello";
  ASSERT_NO_FATAL_FAILURE(OpenUnverifiedPushes(kUnverifiedShares));
  const auto pushed = unverified->Send({worker->Frame(/*step=*/1, /*block=*/0, 1.0f)});
  EXPECT_TRUE(absl::IsAborted(pushed.status())) << pushed.status();
}

TEST_F(SilentPushesTest, AConnectionIsUnverifiedAgainAfterItsWorkerLeaves) {
  observer_ = Enter(0);
  const auto worker = Enter(1);
  ASSERT_NO_FATAL_FAILURE(OpenUnverifiedPushes(kUnverifiedShares));
  // On a verified connection, a push without a frame gets INVALID_ARGUMENT. On an unverified one it
  // gets ABORTED, as below.
  EXPECT_TRUE(absl::IsInvalidArgument(worker->Send({}).status()));
  ASSERT_TRUE(worker->Leave().ok());
  EXPECT_TRUE(Eventually([&] { return absl::IsAborted(worker->Send({}).status()); }));
}

}  // namespace
}  // namespace torchps
