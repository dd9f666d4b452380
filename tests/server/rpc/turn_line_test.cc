#include "server/rpc/turn_line.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

// A stream that has something to send. Its turn is taken by the test, not run.
class Stream final : public CompletionTag {
 public:
  void Proceed(bool /*ok*/) override {}
};

// Asks until somebody's turn has come, as a queue's thread does that gets no answer.
CompletionTag* AskUntilTurn(TurnLine& line, int* questions) {
  for (*questions = 0; *questions <= TurnLine::kQuestions; ++*questions) {
    if (CompletionTag* const turn = line.Next(); turn != nullptr) return turn;
    line.Asked(/*was_long=*/false);
  }
  return nullptr;
}

TEST(TurnLineTest, NobodysTurnWhereNobodyWaits) {
  TurnLine line;
  int questions = 0;
  EXPECT_FALSE(line.waits());
  EXPECT_EQ(AskUntilTurn(line, &questions), nullptr);
}

TEST(TurnLineTest, AQueueIsAskedBeforeEachTurn) {
  TurnLine line;
  Stream first;
  Stream second;
  // What was asked before anybody waited does not count.
  for (int i = 0; i < TurnLine::kQuestions; ++i) line.Asked(/*was_long=*/false);
  line.Enter(&first);
  line.Enter(&second);
  EXPECT_TRUE(line.waits());
  int questions = 0;
  EXPECT_EQ(AskUntilTurn(line, &questions), &first);
  EXPECT_EQ(questions, TurnLine::kQuestions);
  EXPECT_EQ(AskUntilTurn(line, &questions), &second);
  EXPECT_EQ(questions, TurnLine::kQuestions);
  EXPECT_FALSE(line.waits());
}

TEST(TurnLineTest, ATurnFollowsAnEventThatTookLong) {
  TurnLine line;
  Stream stream;
  line.Enter(&stream);
  EXPECT_EQ(line.Next(), nullptr);
  line.Asked(/*was_long=*/true);
  EXPECT_EQ(line.Next(), &stream);
}

TEST(TurnLineTest, WhoGoesOnIsInFrontOfThoseWhoWait) {
  TurnLine line;
  Stream first;
  Stream second;
  line.Enter(&first);
  line.Enter(&second);
  int questions = 0;
  ASSERT_EQ(AskUntilTurn(line, &questions), &first);
  line.GoOn(&first);
  EXPECT_EQ(AskUntilTurn(line, &questions), &first);
  EXPECT_EQ(questions, TurnLine::kQuestions);
  line.Enter(&first);
  EXPECT_EQ(AskUntilTurn(line, &questions), &second);
}

// A play of streams that come into line whenever an event says that they can send, and again at any
// time after their turn; some go on.
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
    line_.Asked(/*was_long=*/answered && random_() % 8 == 0);
    if (line_.waits()) ++asked_since_turn_;
    EXPECT_LE(asked_since_turn_, TurnLine::kQuestions + 1) << "a turn that is due does not come";
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
    ASSERT_NE(entered, kNotWaiting) << "a turn of a stream that is not in line";
    for (const int other : entry_) {
      if (other != kNotWaiting) {
        EXPECT_LE(entered, other) << "somebody has waited for longer";
      }
    }
    asked_since_turn_ = 0;
    if (random_() % 4 == 0) {
      // Before whoever has entered so far, as it was.
      line_.GoOn(turn);
    } else {
      entered = kNotWaiting;
    }
  }

  std::mt19937_64 random_;
  TurnLine line_;
  std::vector<Stream> streams_;
  // By stream, the number of its entry.
  std::vector<int> entry_;
  int entries_ = 0;
  int asked_since_turn_ = 0;
};

// So no stream that enters has two turns while another one waits, and none waits for ever.
TEST(TurnLineTest, TurnsAreInTheOrderOfEnteringAndComeHoweverManyEventsThereAre) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Play play(seed);
    for (int i = 0; i < 300; ++i) play.Step();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace torchps
