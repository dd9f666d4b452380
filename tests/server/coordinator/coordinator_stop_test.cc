// Tests a CoordinatorService that stops while workers call it.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/join_request.h"
#include "tests/testing/plain_worker.h"
#include "torchps/common/clock.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/security/call_admission.h"
#include "torchps/server/coordinator/coordinator_service.h"
#include "torchps/server/rpc/poller.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

// Runs only the coordinator's service. gRPC's server keeps running after Stop(), so a call that
// Stop() forgets waits for its deadline.
class StoppingCoordinator {
 public:
  StoppingCoordinator() : admission_([](const std::string&) {}) {
    CoordinatorService::Options options;
    options.clock = &clock_;
    options.admission = &admission_;
    service_ = std::make_unique<CoordinatorService>(std::move(options));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_->service());
    poller_ = std::make_unique<Poller>(builder.AddCompletionQueue());
    server_ = builder.BuildAndStart();
    service_->Listen(poller_.get());
    poller_->Start(/*threads=*/3);
    stub_ = Coordinator::NewStub(PlainChannel(absl::StrCat("127.0.0.1:", port)));
  }
  ~StoppingCoordinator() {
    service_->Stop();
    server_->Shutdown();
    poller_->Stop();
  }

  void Stop() { service_->Stop(); }

  absl::Status Join() {
    grpc::ClientContext context;
    SetDeadline(&context);
    JoinRequest request = SmallJoin();
    request.set_nonce(7);
    JoinReply reply;
    const absl::Status joined = FromGrpcStatus(stub_->Join(&context, request, &reply));
    slot_.set_slot(reply.slot());
    slot_.set_incarnation(reply.incarnation());
    return joined;
  }
  // Parks, because the job waits for a second worker.
  absl::Status AwaitStart() {
    grpc::ClientContext context;
    SetDeadline(&context);
    AwaitStartReply reply;
    return FromGrpcStatus(stub_->AwaitStart(&context, slot_, &reply));
  }

 private:
  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
  }

  SteadyClock clock_;
  CallAdmission admission_;
  std::unique_ptr<CoordinatorService> service_;
  std::unique_ptr<Poller> poller_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Coordinator::Stub> stub_;
  AwaitStartRequest slot_;
};

// The stops come at random moments, so that some come between the start of a call and its parking.
TEST(CoordinatorStopTest, AnswersOrRefusesEachCallAroundAStop) {
  PrepareGrpcProcess();
  constexpr int kStops = 30;
  constexpr int kCallers = 4;
  for (int stop = 0; stop < kStops; ++stop) {
    StoppingCoordinator coordinator;
    ASSERT_TRUE(coordinator.Join().ok());
    std::atomic<int> replaced{0};
    std::vector<std::thread> callers;
    for (int i = 0; i < kCallers; ++i) {
      callers.emplace_back([&] {
        absl::Status last = coordinator.AwaitStart();
        // All callers have the same slot, so each call replaces the parked one. The replaced caller
        // calls again.
        while (absl::StrContains(last.message(), "a repetition of this call")) {
          ++replaced;
          last = coordinator.AwaitStart();
        }
        EXPECT_TRUE(absl::IsUnavailable(last)) << last;
      });
    }
    EXPECT_TRUE(Eventually([&] { return replaced >= kCallers; }));
    coordinator.Stop();
    for (std::thread& caller : callers) caller.join();
  }
}

}  // namespace
}  // namespace torchps
