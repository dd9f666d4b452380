// Tests the coordinator over gRPC as workers use it, with blocking, cancelled and repeated calls.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/join_request.h"
#include "tests/testing/manual_clock.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/server/server.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

// Deadline of each call. Enough for a slow machine.
constexpr auto kPatience = std::chrono::seconds(60);

// Plays one worker process's side of the control plane, on a separate connection. Each call blocks.
class Client {
 public:
  Client(const std::string& address, uint64_t nonce) : nonce_(nonce) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = Coordinator::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  grpc::Status Join(JoinRequest request = SmallJoin()) {
    request.set_nonce(nonce_);
    JoinReply reply;
    const grpc::Status status = stub_->Join(NewContext().get(), request, &reply);
    slot_ = reply.slot();
    incarnation_ = reply.incarnation();
    return status;
  }

  // Returns the action's name, or the error's message.
  std::string AwaitStart(bool initialized = false) {
    AwaitStartRequest request;
    request.set_slot(slot_);
    request.set_incarnation(incarnation_);
    request.set_initialized(initialized);
    AwaitStartReply reply;
    const grpc::Status status = stub_->AwaitStart(NewContext().get(), request, &reply);
    return status.ok() ? AwaitStartReply::Action_Name(reply.action()) : status.error_message();
  }

  // Starts like a worker: waits for the start, and initializes the model if asked to.
  void Start() {
    std::string action = AwaitStart();
    if (action == "INITIALIZE") action = AwaitStart(/*initialized=*/true);
    EXPECT_EQ(action, "START");
  }

  // Completes the current lease and requests the next work.
  grpc::Status NextWork(bool idle, NextWorkReply* reply) {
    NextWorkRequest request;
    request.set_slot(slot_);
    request.set_incarnation(incarnation_);
    request.set_finished_lease(lease_);
    request.set_call(++calls_);
    request.set_idle(idle);
    const grpc::Status status = stub_->NextWork(NewContext().get(), request, reply);
    if (status.ok()) lease_ = reply->lease().id();
    return status;
  }

  // Works like a worker until the job is done. Returns the number of samples used.
  int64_t WorkToTheEnd() {
    int64_t samples = 0;
    bool idle = false;
    while (true) {
      NextWorkReply reply;
      const grpc::Status status = NextWork(idle, &reply);
      EXPECT_TRUE(status.ok()) << status.error_message();
      if (!status.ok() || reply.done()) return samples;
      idle = reply.go_idle();
      if (reply.has_lease()) samples += reply.lease().end() - reply.lease().begin();
      if (reply.evaluate_epoch() == 0) continue;
      EXPECT_TRUE(Report(reply.evaluate_epoch()).ok());
    }
  }

  grpc::Status Report(int epoch) {
    ReportEvaluationRequest request;
    request.set_slot(slot_);
    request.set_incarnation(incarnation_);
    request.mutable_result()->set_epoch(epoch);
    ReportEvaluationReply reply;
    return stub_->ReportEvaluation(NewContext().get(), request, &reply);
  }

  grpc::Status Renew() {
    RenewSlotRequest request;
    request.set_slot(slot_);
    request.set_incarnation(incarnation_);
    RenewSlotReply reply;
    return stub_->RenewSlot(NewContext().get(), request, &reply);
  }

  JobStatus Status(bool wait_until_done = false) {
    JobStatusRequest request;
    request.set_wait_until_done(wait_until_done);
    JobStatus reply;
    const grpc::Status status = stub_->GetJobStatus(NewContext().get(), request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }

  // Sends an AwaitStart that reaches the deadline while it is parked, and returns the status code.
  grpc::StatusCode AwaitStartAndHangUp() {
    AwaitStartRequest request;
    request.set_slot(slot_);
    request.set_incarnation(incarnation_);
    AwaitStartReply reply;
    grpc::ClientContext context;
    // This deadline ends the call, because the job does not start before it.
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    return stub_->AwaitStart(&context, request, &reply).error_code();
  }

  int slot() const { return slot_; }

 private:
  static std::unique_ptr<grpc::ClientContext> NewContext() {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + kPatience);
    context->set_wait_for_ready(true);
    return context;
  }

  const uint64_t nonce_;
  std::unique_ptr<Coordinator::Stub> stub_;
  int slot_ = -1;
  uint64_t incarnation_ = 0;
  uint64_t calls_ = 0;
  uint64_t lease_ = 0;
};

class CoordinatorOverGrpcTest : public testing::Test {
 protected:
  CoordinatorOverGrpcTest() {
    Server::Options options;
    options.clock = &clock_;
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status();
    if (server.ok()) server_ = *std::move(server);
  }

  Client NewClient() { return Client(server_->address(), next_nonce_++); }

  // Returns two workers that have started.
  std::pair<Client, Client> StartTwo() {
    Client anna = NewClient(), bert = NewClient();
    EXPECT_TRUE(anna.Join().ok());
    EXPECT_TRUE(bert.Join().ok());
    std::thread berts([&bert] { bert.Start(); });
    anna.Start();
    berts.join();
    return {std::move(anna), std::move(bert)};
  }

  // Sends two calls for one slot, so that one call ends the other. Returns the ended call's result
  // and the parked call.
  static std::pair<std::string, std::future<std::string>> AwaitStartTwice(Client& client) {
    std::future<std::string> calls[2];
    for (auto& call : calls) {
      call = std::async(std::launch::async, [&client] { return client.AwaitStart(); });
    }
    const auto ended = [&calls](int i) {
      return calls[i].wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    EXPECT_TRUE(Eventually([&] { return ended(0) || ended(1); }));
    const int first = ended(0) ? 0 : 1;
    return {calls[first].get(), std::move(calls[1 - first])};
  }

  ManualClock clock_;
  std::unique_ptr<Server> server_;
  uint64_t next_nonce_ = 1;
};

TEST_F(CoordinatorOverGrpcTest, RunsAJobFromSubmissionToEnd) {
  auto [anna, bert] = StartTwo();
  auto report = std::async(std::launch::async, [this] { return NewClient().Status(true); });
  auto berts = std::async(std::launch::async, [&bert = bert] { return bert.WorkToTheEnd(); });
  const int64_t annas = anna.WorkToTheEnd();
  EXPECT_EQ(annas + berts.get(), 40);
  const JobStatus status = report.get();
  EXPECT_EQ(status.phase(), JobStatus::DONE);
  ASSERT_EQ(status.epoch_size(), 1);
  EXPECT_EQ(status.epoch(0).used(), 40);
  EXPECT_EQ(status.epoch(0).reissued(), 0);
  EXPECT_EQ(status.evaluation_size(), 1);
}

TEST_F(CoordinatorOverGrpcTest, ReassignsTheRangeOfADeadWorker) {
  auto [anna, bert] = StartTwo();
  NextWorkReply lost;
  ASSERT_TRUE(bert.NextWork(false, &lost).ok());
  ASSERT_TRUE(lost.has_lease());
  // Bert stays silent. Anna continues and waits for the remaining samples.
  auto annas = std::async(std::launch::async, [&anna = anna] { return anna.WorkToTheEnd(); });
  Client watcher = NewClient();
  ASSERT_TRUE(Eventually([&watcher, slot = anna.slot()] {
    return watcher.Status().slot(slot).state() == SlotAccounting::WAITING;
  }));
  clock_.Advance(absl::Seconds(6));
  ASSERT_TRUE(anna.Renew().ok());
  clock_.Advance(absl::Seconds(5));
  EXPECT_EQ(annas.get(), 40) << "the whole epoch, including Bert's range";
  const JobStatus status = watcher.Status();
  EXPECT_EQ(status.phase(), JobStatus::DONE);
  EXPECT_EQ(status.epoch(0).used(), 40);
  EXPECT_EQ(status.epoch(0).reissued(), lost.lease().end() - lost.lease().begin());
  EXPECT_EQ(status.slot(bert.slot()).state(), SlotAccounting::EXPIRED);
  EXPECT_EQ(bert.Renew().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(CoordinatorOverGrpcTest, AWorkerThatJoinsARunningJobGetsSamplesAtOnce) {
  auto [anna, bert] = StartTwo();
  NextWorkReply annas, berts, charlies;
  ASSERT_TRUE(anna.NextWork(false, &annas).ok());
  ASSERT_TRUE(bert.NextWork(false, &berts).ok());
  Client charlie = NewClient();
  ASSERT_TRUE(charlie.Join().ok());
  EXPECT_EQ(charlie.AwaitStart(), "START");
  ASSERT_TRUE(charlie.NextWork(false, &charlies).ok());
  EXPECT_EQ(charlies.lease().begin(), 32);
}

TEST_F(CoordinatorOverGrpcTest, RefusesAJoinWithAnotherJobOrProtocolAndTheJobContinues) {
  auto [anna, bert] = StartTwo();
  JoinRequest other = SmallJoin();
  other.mutable_job()->mutable_training()->set_batch_size(8);
  const grpc::Status refused = NewClient().Join(other);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("training.batch_size"));
  JoinRequest newer = SmallJoin();
  newer.set_protocol_version(kProtocolVersion + 1);
  EXPECT_EQ(NewClient().Join(newer).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  NextWorkReply reply;
  EXPECT_TRUE(anna.NextWork(false, &reply).ok());
}

TEST_F(CoordinatorOverGrpcTest, AParkedCallThatTimedOutMayBeRepeated) {
  Client anna = NewClient(), bert = NewClient();
  ASSERT_TRUE(anna.Join().ok());
  EXPECT_EQ(anna.AwaitStartAndHangUp(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ASSERT_TRUE(bert.Join().ok());
  std::thread berts([&bert] { bert.Start(); });
  anna.Start();
  berts.join();
}

TEST_F(CoordinatorOverGrpcTest, ARepeatedCallReplacesTheParkedCall) {
  Client anna = NewClient(), bert = NewClient();
  ASSERT_TRUE(anna.Join().ok());
  auto [ended, parked] = AwaitStartTwice(anna);
  EXPECT_EQ(ended, "replaced by a repetition of this call");
  ASSERT_TRUE(bert.Join().ok());
  std::thread berts([&bert = bert] { bert.Start(); });
  EXPECT_EQ(parked.get(), "INITIALIZE");
  EXPECT_EQ(anna.AwaitStart(/*initialized=*/true), "START");
  berts.join();
}

TEST_F(CoordinatorOverGrpcTest, AStopAnswersParkedCalls) {
  Client anna = NewClient();
  ASSERT_TRUE(anna.Join().ok());
  auto [ended, parked] = AwaitStartTwice(anna);
  server_->Stop();
  EXPECT_EQ(parked.get(), "the coordinator is shutting down");
}

}  // namespace
}  // namespace torchps
