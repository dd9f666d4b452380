// Tests the answers of the CoordinatorService while writes to the disk fail.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/join_request.h"
#include "tests/testing/plain_worker.h"
#include "torchps/common/clock.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/server/server.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

// Runs a coordinating server that tests can kill, on a disk that can refuse writes.
class CoordinatorServiceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { PrepareGrpcProcess(); }

  void SetUp() override { Start(); }

  void Start(bool resume = false) {
    Server::Options options;
    options.clock = &clock_;
    options.seed = ++incarnations_;
    options.files = &files_;
    options.dir = "/ps";
    options.resume = resume;
    auto server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = Coordinator::NewStub(PlainChannel(server_->address()));
  }

  // Simulates kill -9. The server object still writes while it stops, but nothing reaches the disk.
  void Kill() {
    stub_ = nullptr;
    files_.PowerOffAt(1);
    server_ = nullptr;
    files_.SetFaultHook(nullptr);
    files_.Crash(/*seed=*/incarnations_);
  }

  void RefuseWrites() {
    refused_ = 0;
    files_.SetFaultHook([this](FaultyFileSystem::Operation operation,
                               const std::string&) -> std::optional<FaultyFileSystem::Fault> {
      if (operation != FaultyFileSystem::Operation::kWrite) return std::nullopt;
      ++refused_;
      return FaultyFileSystem::Fault{ENOSPC, 0};
    });
  }

  absl::StatusOr<JoinReply> Join(uint64_t nonce) {
    absl::StatusOr<JoinReply> joined;
    // After a restart, the coordinator refuses calls until it has loaded the resumed job.
    Eventually([&] {
      joined = JoinOnce(nonce);
      return !absl::StrContains(joined.status().message(), "is being resumed");
    });
    return joined;
  }
  absl::StatusOr<JoinReply> JoinOnce(uint64_t nonce) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    JoinRequest request = SmallJoin();
    // With a log, the job can be resumed without a checkpoint.
    request.mutable_job()->mutable_durability()->set_level(DurabilitySpec::LOG);
    request.set_nonce(nonce);
    JoinReply reply;
    const absl::Status status = FromGrpcStatus(stub_->Join(&context, request, &reply));
    if (!status.ok()) return status;
    return reply;
  }

  absl::StatusOr<AwaitStartReply> AwaitStart(const JoinReply& joined) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    AwaitStartRequest request;
    request.set_slot(joined.slot());
    request.set_incarnation(joined.incarnation());
    AwaitStartReply reply;
    const absl::Status status = FromGrpcStatus(stub_->AwaitStart(&context, request, &reply));
    if (!status.ok()) return status;
    return reply;
  }

  absl::Status Renew(const JoinReply& joined) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    RenewSlotRequest request;
    request.set_slot(joined.slot());
    request.set_incarnation(joined.incarnation());
    RenewSlotReply reply;
    return FromGrpcStatus(stub_->RenewSlot(&context, request, &reply));
  }

  FaultyFileSystem files_;
  SteadyClock clock_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Coordinator::Stub> stub_;
  uint64_t incarnations_ = 0;
  std::atomic<int> refused_{0};
};

TEST_F(CoordinatorServiceTest, AcknowledgesAJobOnlyAfterSavingIt) {
  RefuseWrites();
  const auto refused = Join(/*nonce=*/7);
  ASSERT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("No space left on device"));
  files_.SetFaultHook(nullptr);
  const auto first = Join(/*nonce=*/7);
  ASSERT_TRUE(first.ok()) << first.status();
  // After the first save the job continues even if the disk refuses writes.
  RefuseWrites();
  const auto second = Join(/*nonce=*/8);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->job_id(), first->job_id());
  Kill();
  Start();
  const auto later = Join(/*nonce=*/9);
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(later->job_id(), first->job_id());
}

TEST_F(CoordinatorServiceTest, RefusesJoinsUntilTheResumedJobIsSaved) {
  const auto before = Join(/*nonce=*/7);
  ASSERT_TRUE(before.ok()) << before.status();
  Kill();
  Start(/*resume=*/true);
  RefuseWrites();
  const auto refused = Join(/*nonce=*/8);
  EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
  // Without --resume the coordinator loads the job from the disk. The resumed job was never saved,
  // so this is the job from before the resume.
  Kill();
  Start();
  const auto later = Join(/*nonce=*/9);
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(later->job_id(), before->job_id());
}

TEST_F(CoordinatorServiceTest, ContinuesAResumedJobOnceItIsSaved) {
  ASSERT_TRUE(Join(/*nonce=*/7).ok());
  Kill();
  Start(/*resume=*/true);
  RefuseWrites();
  EXPECT_TRUE(absl::IsUnavailable(Join(/*nonce=*/8).status()));
  files_.SetFaultHook(nullptr);
  const auto told = Join(/*nonce=*/8);
  ASSERT_TRUE(told.ok()) << told.status();
  Kill();
  Start();
  const auto again = Join(/*nonce=*/8);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->incarnation(), told->incarnation()) << "not resumed a second time";
}

TEST_F(CoordinatorServiceTest, NeverReusesAnIncarnationAfterFailedSaves) {
  const auto first = Join(/*nonce=*/7);
  ASSERT_TRUE(first.ok()) << first.status();
  std::set<Incarnation> told = {first->incarnation()};
  for (const uint64_t nonce : {8, 9}) {
    Kill();
    Start();
    RefuseWrites();
    const auto refused = Join(nonce);
    EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("No space left on device"));
    if (refused.ok()) {
      EXPECT_TRUE(told.insert(refused->incarnation()).second) << "incarnation assigned twice";
    }
  }
  files_.SetFaultHook(nullptr);
  const auto last = Join(/*nonce=*/9);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_TRUE(told.insert(last->incarnation()).second);
  // From now on the incarnations of this process are reserved, even if the disk refuses writes.
  RefuseWrites();
  const auto another = Join(/*nonce=*/10);
  ASSERT_TRUE(another.ok()) << another.status();
  EXPECT_TRUE(told.insert(another->incarnation()).second);
}

TEST_F(CoordinatorServiceTest, WithAFullDiskOnlyNewWorkersAreRefused) {
  const auto joined = Join(/*nonce=*/7);
  ASSERT_TRUE(joined.ok()) << joined.status();
  Kill();
  Start();
  RefuseWrites();
  EXPECT_TRUE(absl::IsUnavailable(Join(/*nonce=*/8).status()));
  EXPECT_EQ(Renew(*joined), absl::OkStatus());
  const auto again = Join(/*nonce=*/7);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->incarnation(), joined->incarnation());
}

TEST_F(CoordinatorServiceTest, AnnouncesAPhaseOnlyAfterSavingIt) {
  const auto anna = Join(/*nonce=*/7);
  ASSERT_TRUE(anna.ok()) << anna.status();
  const auto bert = Join(/*nonce=*/8);
  ASSERT_TRUE(bert.ok()) << bert.status();
  RefuseWrites();
  const auto await = [this](const JoinReply& joined) {
    return std::async(std::launch::async, [this, joined] { return AwaitStart(joined); });
  };
  std::future<absl::StatusOr<AwaitStartReply>> annas = await(*anna), berts = await(*bert);
  // If the answer did not wait for the disk, it would have been sent before the third failed write.
  ASSERT_TRUE(Eventually([this] { return refused_ >= 3; }));
  EXPECT_EQ(Renew(*anna), absl::OkStatus());
  EXPECT_EQ(annas.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  files_.SetFaultHook(nullptr);
  const absl::StatusOr<AwaitStartReply> told = annas.get();
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->action(), AwaitStartReply::INITIALIZE);
  server_ = nullptr;
  EXPECT_TRUE(absl::IsUnavailable(berts.get().status())) << "waits for the initial values";
}

TEST_F(CoordinatorServiceTest, AServerStartsOnAFullDiskButNotWithoutPermissionToWrite) {
  Kill();
  int error = ENOSPC;
  files_.SetFaultHook([&error](FaultyFileSystem::Operation operation,
                               const std::string&) -> std::optional<FaultyFileSystem::Fault> {
    if (operation != FaultyFileSystem::Operation::kCreate) return std::nullopt;
    return FaultyFileSystem::Fault{error, 0};
  });
  Start();
  server_ = nullptr;
  error = EACCES;
  Server::Options options;
  options.clock = &clock_;
  options.seed = ++incarnations_;
  options.files = &files_;
  options.dir = "/ps";
  const absl::Status refused = Server::Start(options).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cannot save to --dir=/ps: "));
  files_.SetFaultHook(nullptr);
}

}  // namespace
}  // namespace torchps
