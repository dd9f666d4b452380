#include "torchps/client/call_loop.h"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "torchps/client/calls/retry_deadline.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/client/fan_out_call.h"
#include "torchps/client/remote_server.h"
#include "torchps/client/rollback_accounting.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/stop_latch.h"

namespace torchps {
namespace {

// Longer than this test runs.
constexpr absl::Duration kForever = absl::Hours(1);

class CallLoopTest : public ::testing::Test {
 protected:
  CallLoop::Options Options(absl::Duration linger) {
    CallLoop::Options options;
    options.clock = &clock_;
    options.stop = &stop_;
    options.linger = linger;
    return options;
  }

  // Returns a round, that is one FanOutCall. It finishes as soon as a thread polls.
  std::shared_ptr<FanOutCall> EmptyRound() { return RoundWith({}, absl::ZeroDuration()); }

  // Returns a round that finishes only when abandoned.
  std::shared_ptr<FanOutCall> EndlessRound() { return RoundWith({&server_}, kForever); }

  // Returns a round that calls `servers` after `delay`, with empty calls.
  std::shared_ptr<FanOutCall> RoundWith(
      const std::vector<RemoteServer*>& servers, absl::Duration delay,
      std::function<void()> when_due = [] {}) {
    FanOutCall::Rules rules;
    rules.not_before = clock_.Now() + delay;
    return std::make_shared<PlainRound>(
        &clock_, &stop_, rules, servers,
        [when_due = std::move(when_due)](RemoteServer&) -> std::unique_ptr<ClientCall> {
          when_due();
          return nullptr;
        });
  }

  // Polls the loop on this thread until the loop's own thread no longer polls, then returns.
  // `linger` begins with the return.
  void DriveOnce(CallLoop& loop) {
    std::atomic<bool> has_run{false};
    loop.Post([&] { has_run = true; });
    EXPECT_TRUE(Eventually([&] { return has_run.load(); }));
    const auto round = EndlessRound();
    loop.Begin(round, CallLoop::Urgency::kSoon);
    const std::thread::id waiter = std::this_thread::get_id();
    int turns = 0;
    const std::function<void()> end_here = [&] {
      if (std::this_thread::get_id() == waiter && ++turns == 300) {
        round->Fail(absl::CancelledError("it polls"));
      } else {
        std::this_thread::yield();
        loop.Post(end_here);
      }
    };
    loop.Post(end_here, CallLoop::Urgency::kSoon);
    EXPECT_EQ(loop.Await(*round), absl::CancelledError("it polls"));
  }

  SteadyClock clock_;
  StopLatch stop_;
  BlockMap map_ = *BlockMap::Create(*ModelLayout::Create({{"weight", {4}}}), 16, 1);
  RollbackAccounting accounting_{1, nullptr};
  RemoteServer server_{ConnectToServer(0, "127.0.0.1:1"), HelloRequest(), &map_, &accounting_,
                       [this] {
                         RetryDeadline::Options options;
                         options.clock = &clock_;
                         return options;
                       }()};
};

TEST_F(CallLoopTest, TheWaitingThreadRunsTheLoop) {
  CallLoop loop(Options(/*linger=*/kForever));
  DriveOnce(loop);
  std::thread::id ran_on;
  loop.Post([&] { ran_on = std::this_thread::get_id(); }, CallLoop::Urgency::kSoon);
  const auto round = EmptyRound();
  loop.Begin(round, CallLoop::Urgency::kSoon);
  EXPECT_TRUE(loop.Await(*round).ok());
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST_F(CallLoopTest, UrgentPostsRunWithoutAWaiter) {
  CallLoop loop(Options(/*linger=*/kForever));
  DriveOnce(loop);
  std::atomic<bool> has_run{false};
  loop.Post([&] { has_run = true; });
  EXPECT_TRUE(Eventually([&] { return has_run.load(); }));
}

TEST_F(CallLoopTest, AwaitReturnsForAFinishedRound) {
  CallLoop loop(Options(/*linger=*/absl::ZeroDuration()));
  const auto round = EmptyRound();
  loop.Begin(round);
  // The loop's thread has finished the round and sleeps: the queue is empty.
  ASSERT_TRUE(Eventually([&] { return round->finished(); }));
  EXPECT_TRUE(loop.Await(*round).ok());
}

TEST_F(CallLoopTest, RoundsContinueAfterTheWaiterLeaves) {
  CallLoop loop(Options(/*linger=*/kForever));
  std::atomic<bool> has_begun{false};
  const auto later = RoundWith({&server_}, absl::Milliseconds(20), [&] { has_begun = true; });
  loop.Begin(later, CallLoop::Urgency::kSoon);
  DriveOnce(loop);
  EXPECT_TRUE(Eventually([&] { return has_begun.load(); }));
  loop.Post([&] { later->Fail(absl::CancelledError("it has begun")); }, CallLoop::Urgency::kSoon);
  EXPECT_EQ(loop.Await(*later), absl::CancelledError("it has begun"));
}

TEST_F(CallLoopTest, TheLoopsThreadPollsAgainAfterTheLinger) {
  CallLoop loop(Options(/*linger=*/absl::Milliseconds(1)));
  DriveOnce(loop);
  EXPECT_TRUE(Eventually([&] { return loop.is_polled(); }));
}

TEST_F(CallLoopTest, AStopEndsTheWaitForARound) {
  CallLoop loop(Options(/*linger=*/kForever));
  DriveOnce(loop);
  const auto endless = EndlessRound();
  loop.Begin(endless, CallLoop::Urgency::kSoon);
  std::atomic<bool> is_polled{false};
  loop.Post([&] { is_polled = true; }, CallLoop::Urgency::kSoon);
  std::thread stopper([&] {
    EXPECT_TRUE(Eventually([&] { return is_polled.load(); }));
    stop_.Stop("enough");
  });
  EXPECT_EQ(loop.Await(*endless), absl::CancelledError("enough"));
  stopper.join();
}

// Two threads post. The first of them also waits for rounds. With a short linger, that thread
// sometimes waits again only after the loop's thread has begun to poll. Each post must run once, in
// order.
TEST_F(CallLoopTest, RunsPostsOnceAndInOrder) {
  for (const absl::Duration linger : {absl::ZeroDuration(), absl::Microseconds(50), kForever}) {
    constexpr int kPosts = 3000;
    std::vector<int> ran[2];
    {
      CallLoop loop(Options(linger));
      std::thread other([&] {
        for (int i = 0; i < kPosts; ++i) loop.Post([&ran, i] { ran[0].push_back(i); });
      });
      for (int i = 0; i < kPosts; ++i) {
        const bool is_soon = i % 3 != 0;
        loop.Post([&ran, i] { ran[1].push_back(i); },
                  is_soon ? CallLoop::Urgency::kSoon : CallLoop::Urgency::kNow);
        const auto round = EmptyRound();
        loop.Begin(round, is_soon ? CallLoop::Urgency::kSoon : CallLoop::Urgency::kNow);
        ASSERT_TRUE(loop.Await(*round).ok());
      }
      other.join();
      DriveOnce(loop);
    }
    for (const std::vector<int>& order : ran) {
      ASSERT_EQ(order.size(), kPosts);
      for (int i = 0; i < kPosts; ++i) ASSERT_EQ(order[i], i);
    }
  }
}

}  // namespace
}  // namespace torchps
