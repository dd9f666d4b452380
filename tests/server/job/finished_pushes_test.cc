#include "torchps/server/job/finished_pushes.h"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Journal that becomes durable when the test calls BecomeDurable().
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

class FinishedPushesTest : public ::testing::Test, private FinishedPushes::Owner {
 protected:
  FinishedPushes::Id Add(SlotId slot, Step step) {
    FinishedPushes::Push push;
    push.slot = slot;
    push.incarnation = 1;
    push.step = step;
    push.done = done_;
    return pushes_.Add(std::move(push));
  }

  // Makes the pushes up to `step` settled, as if their updates were made.
  void SettleUpTo(Step step) {
    settled_step_ = step;
    pushes_.AnswerSettled();
  }

  FinishedPushes::Done done_;
  Step settled_step_ = 0;
  std::vector<SlotId> answered_;
  FakeJournal journal_;
  FinishedPushes pushes_{this};

 private:
  bool IsSettled(const FinishedPushes::Push& push) const override {
    return push.step <= settled_step_;
  }
  void Answer(const FinishedPushes::Push& push) override { answered_.push_back(push.slot); }
};

TEST_F(FinishedPushesTest, AnswersASettledPushAtOnce) {
  Add(/*slot=*/3, /*step=*/0);
  EXPECT_THAT(answered_, ElementsAre(3));
}

TEST_F(FinishedPushesTest, AnswersAPushOnlyAfterItsUpdate) {
  Add(/*slot=*/0, /*step=*/1);
  Add(/*slot=*/1, /*step=*/2);
  EXPECT_THAT(answered_, IsEmpty());
  EXPECT_TRUE(pushes_.AnyUnsettled());
  SettleUpTo(1);
  EXPECT_THAT(answered_, ElementsAre(0));
  SettleUpTo(2);
  EXPECT_THAT(answered_, ElementsAre(0, 1));
  EXPECT_FALSE(pushes_.AnyUnsettled());
  // A repeated push whose update was made is answered at once.
  Add(/*slot=*/0, /*step=*/1);
  EXPECT_THAT(answered_, ElementsAre(0, 1, 0));
}

TEST_F(FinishedPushesTest, AnswersAPushOnlyWhenItsUpdateIsDurable) {
  pushes_.SetJournal(&journal_);
  Add(/*slot=*/0, /*step=*/1);
  journal_.BecomeDurable();
  EXPECT_THAT(answered_, IsEmpty());
  SettleUpTo(1);
  EXPECT_THAT(answered_, IsEmpty());
  journal_.BecomeDurable();
  EXPECT_THAT(answered_, ElementsAre(0));
}

TEST_F(FinishedPushesTest, ACancelledPushIsNotAnsweredAndIsReleased) {
  pushes_.SetJournal(&journal_);
  const auto held = std::make_shared<int>(0);
  done_ = [held](const absl::StatusOr<PushReply>&) {};
  const FinishedPushes::Id in_update = Add(/*slot=*/0, /*step=*/1);
  const FinishedPushes::Id in_journal = Add(/*slot=*/1, /*step=*/0);
  EXPECT_EQ(held.use_count(), 4);
  pushes_.Cancel(in_update);
  pushes_.Cancel(in_journal);
  EXPECT_EQ(held.use_count(), 2) << "only `done_`";
  EXPECT_FALSE(pushes_.AnyUnsettled());
  SettleUpTo(1);
  journal_.BecomeDurable();
  EXPECT_THAT(answered_, IsEmpty());
}

TEST_F(FinishedPushesTest, IgnoresACancelAfterTheAnswer) {
  const FinishedPushes::Id id = Add(/*slot=*/0, /*step=*/0);
  pushes_.Cancel(id);
  EXPECT_THAT(answered_, ElementsAre(0));
}

}  // namespace
}  // namespace torchps
