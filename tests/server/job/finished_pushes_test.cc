#include "server/job/finished_pushes.h"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Durable when the test says so.
class FakeJournal final : public BlockJournal {
 public:
  void Record(const Block&, const BlockRecord&) override {}
  void WhenDurable(std::function<void()> continuation) override {
    waiting_.push_back(std::move(continuation));
  }

  void BecomeDurable() {
    for (const auto& continuation : std::exchange(waiting_, {})) continuation();
  }

 private:
  std::vector<std::function<void()>> waiting_;
};

class FinishedPushesTest : public ::testing::Test {
 protected:
  FinishedPushes::Id Add(SlotId slot, Step step, bool awaits_round) {
    return pushes_.Add({slot, /*incarnation=*/1, step, nullptr}, awaits_round);
  }

  void RaiseRounds(int64_t round) {
    for (const RisingNumber::Continuation& due : pushes_.RaiseRounds(round)) due();
  }

  std::vector<SlotId> answered_;
  FakeJournal journal_;
  FinishedPushes pushes_{
      [this](const FinishedPushes::Push& push) { answered_.push_back(push.slot); }};
};

TEST_F(FinishedPushesTest, AnswersAtOnceWhereThereIsNothingToWaitFor) {
  Add(/*slot=*/3, /*step=*/1, /*awaits_round=*/false);
  EXPECT_THAT(answered_, ElementsAre(3));
}

TEST_F(FinishedPushesTest, AwaitsItsRound) {
  Add(/*slot=*/0, /*step=*/1, /*awaits_round=*/true);
  Add(/*slot=*/1, /*step=*/2, /*awaits_round=*/true);
  EXPECT_THAT(answered_, IsEmpty());
  RaiseRounds(1);
  EXPECT_THAT(answered_, ElementsAre(0));
  RaiseRounds(2);
  EXPECT_THAT(answered_, ElementsAre(0, 1));
  // A repeat of a round that has been applied.
  Add(/*slot=*/0, /*step=*/1, /*awaits_round=*/true);
  EXPECT_THAT(answered_, ElementsAre(0, 1, 0));
}

TEST_F(FinishedPushesTest, AwaitsTheJournalAfterTheRound) {
  pushes_.SetJournal(&journal_);
  Add(/*slot=*/0, /*step=*/1, /*awaits_round=*/true);
  journal_.BecomeDurable();
  EXPECT_THAT(answered_, IsEmpty());
  RaiseRounds(1);
  EXPECT_THAT(answered_, IsEmpty());
  journal_.BecomeDurable();
  EXPECT_THAT(answered_, ElementsAre(0));
}

TEST_F(FinishedPushesTest, ACancelledPushIsForgottenWhereverItWaits) {
  pushes_.SetJournal(&journal_);
  const auto held = std::make_shared<int>(0);
  const auto done = [held](const absl::StatusOr<PushReply>&) {};
  const auto in_round = pushes_.Add({0, 1, /*step=*/1, done}, /*awaits_round=*/true);
  const auto in_journal = pushes_.Add({1, 1, /*step=*/1, done}, /*awaits_round=*/false);
  EXPECT_EQ(held.use_count(), 4);
  pushes_.Cancel(in_round);
  pushes_.Cancel(in_journal);
  EXPECT_EQ(held.use_count(), 2) << "only `done` here";
  RaiseRounds(1);
  journal_.BecomeDurable();
  EXPECT_THAT(answered_, IsEmpty());
}

TEST_F(FinishedPushesTest, AfterTheAnswerThereIsNothingToCancel) {
  const FinishedPushes::Id id = Add(/*slot=*/0, /*step=*/1, /*awaits_round=*/false);
  pushes_.Cancel(id);
  EXPECT_THAT(answered_, ElementsAre(0));
}

}  // namespace
}  // namespace torchps
