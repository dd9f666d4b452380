#include "torchps/server/job/frame_admission.h"

#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace torchps {
namespace {

constexpr int64_t kBudgetBytes = 10;

// Admits records only while `has_room` is true.
class LimitedJournal final : public BlockJournal {
 public:
  void Record(const Block&, const BlockRecord&) override {}
  void WhenDurable(std::function<void()> continuation) override { continuation(); }

  RoomId WhenRoom(std::function<void()> continuation) override {
    if (has_room) return 0;
    waiting_[++last_] = std::move(continuation);
    return last_;
  }
  void CancelRoom(RoomId id) override { waiting_.erase(id); }

  void MakeRoom() {
    has_room = true;
    for (auto& [id, continuation] : std::exchange(waiting_, {})) continuation();
  }

  size_t waiting() const { return waiting_.size(); }

  bool has_room = true;

 private:
  RoomId last_ = 0;
  std::map<RoomId, std::function<void()>> waiting_;
};

class FrameAdmissionTest : public ::testing::Test {
 protected:
  bool Await(BlockJournal* journal, int64_t bytes) {
    return admission_.Await(journal, bytes, [this] { ++entered_; });
  }

  ByteBudget budget_{kBudgetBytes};
  LimitedJournal journal_;
  FrameAdmission admission_{&budget_};
  int entered_ = 0;
};

TEST_F(FrameAdmissionTest, AFrameEntersAtOnceIfThereIsRoom) {
  EXPECT_TRUE(Await(&journal_, 4));
  EXPECT_EQ(entered_, 1);
  EXPECT_EQ(budget_.held(), 4);
  admission_.Release(4);
  EXPECT_EQ(budget_.held(), 0);
}

TEST_F(FrameAdmissionTest, ReservesNoBytesBeforeTheJournalHasRoom) {
  journal_.has_room = false;
  EXPECT_TRUE(Await(&journal_, 4));
  EXPECT_EQ(entered_, 0);
  EXPECT_EQ(budget_.held(), 0);
  journal_.MakeRoom();
  EXPECT_EQ(entered_, 1);
  EXPECT_EQ(budget_.held(), 4);
}

TEST_F(FrameAdmissionTest, WaitsForTheJournalThenForBytes) {
  journal_.has_room = false;
  ASSERT_EQ(budget_.Take(kBudgetBytes, [] {}), 0u);
  EXPECT_TRUE(Await(&journal_, 4));
  journal_.MakeRoom();
  EXPECT_EQ(entered_, 0);
  budget_.GiveBack(kBudgetBytes);
  EXPECT_EQ(entered_, 1);
  EXPECT_EQ(budget_.held(), 4);
}

TEST_F(FrameAdmissionTest, APullDoesNotWaitForTheJournal) {
  journal_.has_room = false;
  EXPECT_TRUE(Await(nullptr, 4));
  EXPECT_EQ(entered_, 1);
}

TEST_F(FrameAdmissionTest, TryEnterNeverWaits) {
  EXPECT_TRUE(TryEnter(&journal_, &budget_, kBudgetBytes));
  EXPECT_EQ(budget_.held(), kBudgetBytes);
  EXPECT_FALSE(TryEnter(&journal_, &budget_, 1)) << "too few bytes are left";
  EXPECT_FALSE(budget_.waits());
  budget_.GiveBack(kBudgetBytes);
  journal_.has_room = false;
  EXPECT_FALSE(TryEnter(&journal_, &budget_, 1)) << "the journal has no room";
  EXPECT_EQ(journal_.waiting(), 0u);
  EXPECT_EQ(budget_.held(), 0);
  EXPECT_TRUE(TryEnter(nullptr, &budget_, 1));
  EXPECT_EQ(budget_.held(), 1);
}

TEST_F(FrameAdmissionTest, ACancelledWaiterLeavesTheJournalQueue) {
  journal_.has_room = false;
  EXPECT_TRUE(Await(&journal_, 4));
  EXPECT_TRUE(admission_.Cancel());
  EXPECT_EQ(journal_.waiting(), 0u);
  journal_.MakeRoom();
  EXPECT_EQ(entered_, 0);
  EXPECT_EQ(budget_.held(), 0);
}

TEST_F(FrameAdmissionTest, ACancelledWaiterLeavesTheBudgetQueue) {
  ASSERT_EQ(budget_.Take(kBudgetBytes, [] {}), 0u);
  EXPECT_TRUE(Await(&journal_, 4));
  bool next = false;
  ASSERT_NE(budget_.Take(1, [&] { next = true; }), 0u);
  EXPECT_TRUE(admission_.Cancel());
  budget_.GiveBack(kBudgetBytes);
  EXPECT_TRUE(next);
  EXPECT_EQ(entered_, 0);
  EXPECT_EQ(budget_.held(), 1);
}

TEST_F(FrameAdmissionTest, CancelAfterEntryReturnsFalse) {
  EXPECT_TRUE(Await(&journal_, 4));
  EXPECT_FALSE(admission_.Cancel());
  EXPECT_EQ(budget_.held(), 4) << "the frame is still being handled";
}

TEST_F(FrameAdmissionTest, DoesNotWaitAfterCancel) {
  EXPECT_FALSE(admission_.Cancel());
  EXPECT_FALSE(Await(&journal_, 4));
  EXPECT_EQ(entered_, 0);
  EXPECT_EQ(budget_.held(), 0);
}

// Calls wait and are cancelled on several threads. Each wait must end exactly once, and all bytes
// must be released.
TEST_F(FrameAdmissionTest, EachWaitEndsOnceUnderConcurrency) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 2'000;
  struct Call {
    explicit Call(ByteBudget* budget) : admission(budget) {}
    FrameAdmission admission;
    std::atomic<int> ends{0};
  };
  std::vector<std::vector<std::shared_ptr<Call>>> calls(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        const auto call = calls[t].emplace_back(std::make_shared<Call>(&budget_));
        std::thread canceller;
        const auto cancel = [call] { call->ends += call->admission.Cancel() ? 1 : 0; };
        if (i % 16 == 0) canceller = std::thread(cancel);
        const bool waits = call->admission.Await(nullptr, 6, [call] {
          ++call->ends;
          call->admission.Release(6);
        });
        if (!waits) ++call->ends;
        if (canceller.joinable()) canceller.join();
        // If the call still waits, this ends the wait.
        cancel();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_thread : calls) {
    for (const std::shared_ptr<Call>& call : of_thread) EXPECT_EQ(call->ends, 1);
  }
  EXPECT_EQ(budget_.held(), 0);
}

}  // namespace
}  // namespace torchps
