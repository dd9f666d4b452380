#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/server/rpc/poller.h"

namespace torchps {
namespace {

// Stands in for a stream that can send. The test counts turns instead of running them.
class Stream final : public CompletionTag {
 public:
  void Proceed(bool /*ok*/) override {}
};

// Polls until a stream's turn, like a thread with an empty queue.
CompletionTag* PollUntilTurn(RoundRobin& line, int* polls) {
  for (*polls = 0; *polls <= RoundRobin::kPolls; ++*polls) {
    if (CompletionTag* const turn = line.Next(); turn != nullptr) return turn;
    line.Polled(/*was_long=*/false);
  }
  return nullptr;
}

TEST(RoundRobinTest, AnEmptyQueueHasNoTurn) {
  RoundRobin line;
  int polls = 0;
  EXPECT_FALSE(line.waits());
  EXPECT_EQ(PollUntilTurn(line, &polls), nullptr);
}

TEST(RoundRobinTest, PollsTheQueueBeforeEachTurn) {
  RoundRobin line;
  Stream first;
  Stream second;
  // Polls before the first entry do not count.
  for (int i = 0; i < RoundRobin::kPolls; ++i) line.Polled(/*was_long=*/false);
  line.Enter(&first);
  line.Enter(&second);
  EXPECT_TRUE(line.waits());
  int polls = 0;
  EXPECT_EQ(PollUntilTurn(line, &polls), &first);
  EXPECT_EQ(polls, RoundRobin::kPolls);
  EXPECT_EQ(PollUntilTurn(line, &polls), &second);
  EXPECT_EQ(polls, RoundRobin::kPolls);
  EXPECT_FALSE(line.waits());
}

TEST(RoundRobinTest, AfterALongEventATurnComesAtOnce) {
  RoundRobin line;
  Stream stream;
  line.Enter(&stream);
  EXPECT_EQ(line.Next(), nullptr);
  line.Polled(/*was_long=*/true);
  EXPECT_EQ(line.Next(), &stream);
}

// Simulates streams that enter when an event allows them to send, and again at any time after their
// turn.
class Play {
 public:
  explicit Play(uint64_t seed) : random_(seed), streams_(2 + random_() % 15) {
    entry_.resize(streams_.size(), kNotWaiting);
  }

  void Step() {
    if (CompletionTag* const turn = line_.Next(); turn != nullptr) {
      TakeTurn(turn);
      return;
    }
    const bool answered = random_() % 2 == 0;
    if (answered) EnterOne();
    line_.Polled(/*was_long=*/answered && random_() % 8 == 0);
    if (line_.waits()) ++polls_since_turn_;
    EXPECT_LE(polls_since_turn_, RoundRobin::kPolls + 1) << "a due turn is missing";
  }

 private:
  static constexpr int kNotWaiting = -1;

  void EnterOne() {
    const size_t i = random_() % streams_.size();
    if (entry_[i] != kNotWaiting) return;
    line_.Enter(&streams_[i]);
    entry_[i] = ++entries_;
  }

  void TakeTurn(CompletionTag* turn) {
    const auto stream =
        std::find_if(streams_.begin(), streams_.end(),
                     [turn](const Stream& candidate) { return &candidate == turn; });
    ASSERT_NE(stream, streams_.end());
    int& entered = entry_[stream - streams_.begin()];
    ASSERT_NE(entered, kNotWaiting) << "a turn of a stream that did not enter";
    for (const int other : entry_) {
      if (other != kNotWaiting) {
        EXPECT_LE(entered, other) << "another stream waited longer";
      }
    }
    polls_since_turn_ = 0;
    entered = kNotWaiting;
  }

  std::mt19937_64 random_;
  RoundRobin line_;
  std::vector<Stream> streams_;
  // For each stream, the number of its entry, or kNotWaiting.
  std::vector<int> entry_;
  int entries_ = 0;
  int polls_since_turn_ = 0;
};

// With this order no stream has two turns while another waits, and no stream waits forever.
TEST(RoundRobinTest, TurnsFollowTheOrderOfEntry) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Play play(seed);
    for (int i = 0; i < 300; ++i) play.Step();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace torchps
