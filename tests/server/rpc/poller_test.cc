#include "torchps/server/rpc/poller.h"

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "grpc/support/time.h"
#include "grpcpp/alarm.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

// An event that runs `work` on the thread that handles it.
class Event final : public CompletionTag {
 public:
  explicit Event(std::function<void()> work, bool is_long = false) : work_(std::move(work)) {
    is_long_ = is_long;
  }

  void Post(grpc::CompletionQueue* queue) {
    alarm_.Set(queue, gpr_inf_past(GPR_CLOCK_REALTIME), static_cast<CompletionTag*>(this));
  }

  void Proceed(bool ok) override {
    EXPECT_TRUE(ok);
    work_();
  }

 private:
  const std::function<void()> work_;
  grpc::Alarm alarm_;
};

class PollerTest : public ::testing::Test {
 protected:
  PollerTest() {
    grpc::ServerBuilder builder;
    poller_ = std::make_unique<Poller>(builder.AddCompletionQueue());
    server_ = builder.BuildAndStart();
  }

  ~PollerTest() override { Stop(); }

  void Stop() {
    server_->Shutdown();
    poller_->Stop();
  }

  std::unique_ptr<Poller> poller_;
  std::unique_ptr<grpc::Server> server_;
};

// The first event waits for the second, so this test hangs if only one thread polls.
TEST_F(PollerTest, AnotherThreadPollsDuringALongEvent) {
  std::promise<void> second_ran;
  std::promise<void> first_ran;
  Event second([&] { second_ran.set_value(); });
  Event first(
      [&] {
        second.Post(poller_->queue());
        second_ran.get_future().wait();
        first_ran.set_value();
      },
      /*is_long=*/true);
  poller_->Start(2);
  first.Post(poller_->queue());
  first_ran.get_future().wait();
}

TEST_F(PollerTest, ThePollingThreadHandlesAShortEvent) {
  std::promise<std::thread::id> first_ran;
  std::promise<std::thread::id> second_ran;
  Event second([&] { second_ran.set_value(std::this_thread::get_id()); });
  Event first([&] {
    second.Post(poller_->queue());
    first_ran.set_value(std::this_thread::get_id());
  });
  poller_->Start(2);
  first.Post(poller_->queue());
  EXPECT_EQ(first_ran.get_future().get(), second_ran.get_future().get());
}

TEST_F(PollerTest, AnEnteredTurnRunsWithoutAnotherEvent) {
  std::promise<void> turn_came;
  Event turn([&] { turn_came.set_value(); });
  Event event([&] { poller_->Enter(&turn); });
  poller_->Start(1);
  event.Post(poller_->queue());
  turn_came.get_future().wait();
}

TEST_F(PollerTest, StopWaitsUntilNoCallUsesTheQueue) {
  std::atomic<bool> is_used{true};
  poller_->Start(1);
  std::shared_ptr<const void> use = poller_->Use();
  std::promise<void> may_end;
  std::thread user([&] {
    may_end.get_future().wait();
    is_used = false;
    use.reset();
  });
  Event last([&] { may_end.set_value(); });
  last.Post(poller_->queue());
  Stop();
  EXPECT_FALSE(is_used);
  user.join();
}

TEST_F(PollerTest, StopsWithoutAStart) { Stop(); }

}  // namespace
}  // namespace torchps
