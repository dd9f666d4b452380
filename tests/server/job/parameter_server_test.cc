// Tests how a parameter server answers Hello while it restores or creates a job.

#include "torchps/server/job/parameter_server.h"

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/manual_clock.h"
#include "torchps/common/mutex.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kLife = 7;

// Waits for the answer to a Hello.
class Answer {
 public:
  void Set(absl::StatusOr<HelloReply> reply) {
    MutexLock lock(&mutex_);
    reply_ = std::move(reply);
    changed_.SignalAll();
  }

  bool IsThere() {
    MutexLock lock(&mutex_);
    return reply_.has_value();
  }

  absl::StatusOr<HelloReply> Wait() {
    MutexLock lock(&mutex_);
    while (!reply_.has_value()) changed_.Wait(&mutex_);
    return *reply_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::StatusOr<HelloReply>> reply_ ABSL_GUARDED_BY(mutex_);
};

class ParameterServerTest : public ::testing::Test {
 protected:
  std::unique_ptr<ParameterServer> StartServer(const std::string& dir) {
    ParameterServer::Options options;
    options.server_incarnation = kLife;
    options.dir = dir;
    options.clock = &clock_;
    options.files = &files_;
    return std::make_unique<ParameterServer>(options);
  }

  static std::shared_ptr<Answer> Greet(ParameterServer& server, const HelloRequest& hello) {
    auto answer = std::make_shared<Answer>();
    server.Hello(hello,
                 [answer](absl::StatusOr<HelloReply> reply) { answer->Set(std::move(reply)); });
    return answer;
  }

  static HelloRequest GetHello(SlotId slot) {
    HelloRequest hello = JobHarness::Hello({});
    hello.set_slot(slot);
    hello.set_incarnation(static_cast<Incarnation>(slot) + 1);
    return hello;
  }

  // Makes directory listings wait for release_ and then fail with `error`, if given.
  void SlowDown(std::optional<int> error = std::nullopt) {
    files_.SetFaultHook([this, error](FaultyFileSystem::Operation operation, const std::string&) {
      std::optional<FaultyFileSystem::Fault> fault;
      if (operation != FaultyFileSystem::Operation::kList) return fault;
      if (!reached_.HasBeenNotified()) reached_.Notify();
      release_.WaitForNotification();
      if (error.has_value()) fault = FaultyFileSystem::Fault{*error, 0};
      return fault;
    });
  }

  ManualClock clock_;
  FaultyFileSystem files_;
  absl::Notification reached_;  // set when a listing starts
  absl::Notification release_;
};

TEST_F(ParameterServerTest, HelloAnswersRestoringAfterASecondOfRestoring) {
  SlowDown();
  const auto server = StartServer("/data");
  const auto first = Greet(*server, GetHello(0));
  const auto second = Greet(*server, GetHello(1));
  reached_.WaitForNotification();
  server->AnswerSlowHellos();
  EXPECT_FALSE(first->IsThere()) << "the restore may finish in a moment";
  clock_.Advance(absl::Seconds(1));
  server->AnswerSlowHellos();
  for (const auto& answer : {first, second}) {
    ASSERT_TRUE(answer->IsThere());
    const auto reply = answer->Wait();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(reply->has_restoring());
    EXPECT_THAT(reply->restoring().what(), HasSubstr("checkpoint"));
    EXPECT_EQ(reply->server_incarnation(), kLife);
  }
  EXPECT_TRUE(server->Describe(false).has_restoring());

  // The workers retry, and enter once the restore is complete.
  const auto again = Greet(*server, GetHello(1));
  release_.Notify();
  const auto reply = again->Wait();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(reply->has_restoring());
  EXPECT_FALSE(server->Describe(false).has_restoring());
}

TEST_F(ParameterServerTest, TheNextHelloOfAWaitingSlotGetsTheErrorOfTheRestore) {
  SlowDown(EACCES);
  const auto server = StartServer("/data");
  const auto first = Greet(*server, GetHello(0));
  const auto second = Greet(*server, GetHello(2));
  reached_.WaitForNotification();
  clock_.Advance(absl::Seconds(1));
  server->AnswerSlowHellos();
  ASSERT_TRUE(first->IsThere());
  ASSERT_TRUE(second->IsThere());
  release_.Notify();
  ASSERT_TRUE(Eventually([&] { return !server->Describe(false).has_restoring(); }));
  EXPECT_FALSE(Greet(*server, GetHello(0))->Wait().ok());
  // Slot 0 was waiting for the restore, so it gets the error. Slot 1 was not, so its Hello begins
  // another restore.
  files_.SetFaultHook(nullptr);
  const auto other = Greet(*server, GetHello(1))->Wait();
  EXPECT_TRUE(other.ok()) << other.status();
  // Slot 2 was waiting for the failed restore, but a later restore has succeeded, so it gets no
  // error.
  const auto late = Greet(*server, GetHello(2))->Wait();
  EXPECT_TRUE(late.ok()) << late.status();
}

TEST_F(ParameterServerTest, AHelloThatOnlyRestoresAdmitsNoSlot) {
  const auto server = StartServer("/data");
  HelloRequest hello = GetHello(0);
  hello.set_only_restores(true);
  const auto restored = Greet(*server, hello)->Wait();
  ASSERT_TRUE(restored.ok()) << restored.status();
  ASSERT_NE(server->job(), nullptr);
  EXPECT_EQ(server->Describe(false).slot_size(), 0);
  ASSERT_TRUE(Greet(*server, GetHello(0))->Wait().ok());
  EXPECT_EQ(server->Describe(false).slot_size(), 1);
}

TEST_F(ParameterServerTest, AServerWithoutTheBlocksRefusesARunningJob) {
  HelloRequest hello = GetHello(0);
  hello.set_continues(true);
  for (const char* const dir : {"", "/data"}) {
    for (const DurabilitySpec::Level level : {DurabilitySpec::CHECKPOINT, DurabilitySpec::LOG}) {
      const auto server = StartServer(dir);
      hello.mutable_job()->mutable_durability()->set_level(level);
      const auto answer = Greet(*server, hello)->Wait();
      EXPECT_TRUE(absl::IsNotFound(answer.status())) << answer.status();
      EXPECT_EQ(server->job(), nullptr);
    }
  }
  // The server can still host a new job.
  const auto server = StartServer("/data");
  const auto answer = Greet(*server, GetHello(0))->Wait();
  EXPECT_TRUE(answer.ok()) << answer.status();
}

}  // namespace
}  // namespace torchps
