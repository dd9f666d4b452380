#include "torchps/server/store/sync_push.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/manual_clock.h"

namespace torchps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

// Records the journal's entries in order.
class SyncJournal final : public BlockJournal {
 public:
  struct Entry {
    BlockRecord::Kind kind;
    Version version_before;
    std::vector<SlotId> slots;
    GradientTerms terms;
  };
  void Record(const Block& block, const BlockRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) override {
    (void)block;  // named only for the lock annotation
    entries.push_back({record.kind, record.version_before,
                       std::vector<SlotId>(record.slots.begin(), record.slots.end()),
                       record.terms});
  }
  void WhenDurable(std::function<void()> continuation) override { continuation(); }

  std::vector<Entry> entries;
};

// Blocks of two elements under plain SGD with rate 1, so that a gradient of 1 subtracts 1.
class SyncPushTest : public ::testing::Test {
 protected:
  // Makes `count` blocks on this server with values of 0.
  void Make(int count, int backup_workers = 0, double grace_part = 0) {
    Segment segment;
    segment.name = "weight";
    segment.shape = {2 * count};
    layout_ = *ModelLayout::Create({segment});
    map_ = *BlockMap::Create(layout_, 2 * sizeof(float), /*servers=*/1);
    OptimizerSpec spec;
    *spec.mutable_sgd() = sgd_;
    spec.set_learning_rate(1.0);
    updater_ = *BlockUpdater::Create(spec, layout_, map_);
    sync_ = std::make_unique<SyncPush>(count, count, backup_workers, updater_.get(), grace_part,
                                       &clock_);
    sync_->SetJournal(&journal_);
    for (const BlockRange& range : map_.blocks()) {
      blocks_.push_back(std::make_unique<Block>(range));
      Block& block = *blocks_.back();
      MutexLock lock(&block.mutex);
      updater_->Allocate(&block);
      const BlockChange change(&block);
      std::fill(block.values.begin(), block.values.end(), 0.0f);
    }
  }

  void SetLive(const std::vector<LiveSlot>& live) {
    sync_->SetLive(live);
    for (const auto& block : blocks_) {
      MutexLock lock(&block->mutex);
      sync_->Reconsider(block.get());
    }
  }

  absl::StatusOr<PushDecision> Push(SlotId slot, Step step, float gradient, uint32_t samples = 1,
                                    int block = 0, Incarnation incarnation = 1,
                                    uint32_t progress = 0) {
    PushHeader header = Header(slot, step, block, incarnation);
    header.weight = samples;
    header.progress = progress;
    MutexLock lock(&blocks_[block]->mutex);
    return sync_->Push(blocks_[block].get(), header, MakePayload(std::vector<float>(2, gradient)));
  }
  absl::StatusOr<PushDecision> PushPartly(SlotId slot, Step step, float gradient,
                                          ElementRuns absent, int block = 0) {
    PushHeader header = Header(slot, step, block, 1);
    header.weight = 1;
    header.absent = std::move(absent);
    MutexLock lock(&blocks_[block]->mutex);
    return sync_->Push(blocks_[block].get(), header,
                       CoversAll(header.absent, 2) ? FramePayload()
                                                   : MakePayload(std::vector<float>(2, gradient)));
  }
  absl::StatusOr<PushDecision> PushWithheld(SlotId slot, Step step, int block = 0) {
    PushHeader header = Header(slot, step, block, 1);
    header.withheld = true;
    MutexLock lock(&blocks_[block]->mutex);
    return sync_->Push(blocks_[block].get(), header, FramePayload());
  }
  Verdict GetVerdict(SlotId slot, Step step, float gradient, uint32_t samples = 1, int block = 0) {
    const absl::StatusOr<PushDecision> decision = Push(slot, step, gradient, samples, block);
    EXPECT_TRUE(decision.ok()) << decision.status();
    return decision.ok() ? decision->verdict : VERDICT_UNSPECIFIED;
  }

  std::vector<float> Values(int block = 0) {
    MutexLock lock(&blocks_[block]->mutex);
    return {blocks_[block]->values.begin(), blocks_[block]->values.end()};
  }
  Version GetVersion(int block = 0) {
    MutexLock lock(&blocks_[block]->mutex);
    return blocks_[block]->version;
  }

  // Does what the server does periodically: ends the rounds whose grace time is over.
  void EndRounds() {
    if (!sync_->TakeDue()) return;
    for (const auto& block : blocks_) {
      MutexLock lock(&block->mutex);
      sync_->Reconsider(block.get());
    }
  }

  SgdSpec sgd_;  // used by Make()
  ManualClock clock_;
  SyncJournal journal_;
  ModelLayout layout_;
  BlockMap map_;
  std::unique_ptr<BlockUpdater> updater_;
  std::unique_ptr<SyncPush> sync_;
  std::vector<std::unique_ptr<Block>> blocks_;

 private:
  static PushHeader Header(SlotId slot, Step step, int block, Incarnation incarnation) {
    PushHeader header;
    header.slot = slot;
    header.incarnation = incarnation;
    header.step = step;
    header.block = block;
    return header;
  }
};

TEST_F(SyncPushTest, AnOverflowingSumIsAppliedIfItsMeanIsFinite) {
  Make(1);
  SetLive({{0, 0}, {1, 0}});
  EXPECT_EQ(GetVerdict(0, 1, 1e37f, /*samples=*/64), ACCEPTED);
  EXPECT_EQ(GetVerdict(1, 1, 1e37f, /*samples=*/1 << 20), ACCEPTED);
  EXPECT_THAT(Values(), Each(FloatEq(-1e37f)));
}

TEST_F(SyncPushTest, AppliesTheSampleWeightedMeanOnce) {
  Make(1);
  SetLive({{0, 0}, {1, 0}});
  EXPECT_EQ(GetVerdict(0, 1, /*gradient=*/4, /*samples=*/3), ACCEPTED);
  EXPECT_THAT(Values(), Each(0)) << "slot 1 did not push yet";
  EXPECT_EQ(sync_->completed_rounds(), 0);
  EXPECT_EQ(GetVerdict(1, 1, /*gradient=*/8, /*samples=*/1), ACCEPTED);
  EXPECT_THAT(Values(), Each(FloatEq(-5))) << "(3 x 4 + 1 x 8) / 4";
  EXPECT_EQ(GetVersion(), 1);
  EXPECT_EQ(sync_->completed_rounds(), 1);
  ASSERT_EQ(journal_.entries.size(), 1u);
  EXPECT_EQ(journal_.entries[0].kind, BlockRecord::Kind::kGradient);
  EXPECT_THAT(journal_.entries[0].slots, ElementsAre(0, 1));
}

// As in torch.optim, a skipped step is not a step of the optimizer.
TEST_F(SyncPushTest, ASkippedRoundIsNoOptimizerStep) {
  sgd_.set_momentum(0.5);
  sgd_.set_dampening(0.75);  // except in the first step
  Make(2);
  SetLive({{0, 0}});
  ASSERT_TRUE(PushWithheld(0, 1, /*block=*/0).ok());
  EXPECT_EQ(GetVersion(), 1);
  EXPECT_EQ(GetVerdict(0, 1, 8, 1, /*block=*/1), ACCEPTED);
  EXPECT_THAT(Values(1), Each(FloatEq(-8)));
  EXPECT_EQ(GetVerdict(0, 2, 8), ACCEPTED);
  EXPECT_EQ(GetVersion(), 2);
  EXPECT_THAT(Values(), Each(FloatEq(-8)));
  EXPECT_EQ(GetVerdict(0, 2, 8, 1, /*block=*/1), ACCEPTED);
  SetLive({{0, 9}});
  EXPECT_EQ(GetVersion(), 9);
  EXPECT_EQ(GetVerdict(0, 10, 8), ACCEPTED);
  EXPECT_THAT(Values(), Each(FloatEq(-8 - (0.5f * 8 + 0.25f * 8))));
}

TEST_F(SyncPushTest, ARoundHasTheProgressOfItsEarliestSamples) {
  Make(1);
  SetLive({{0, 0}, {1, 0}, {2, 0}});
  const auto push = [&](SlotId slot, Step step, uint32_t progress) {
    EXPECT_TRUE(
        Push(slot, step, /*gradient=*/1, /*samples=*/1, /*block=*/0, /*incarnation=*/1, progress)
            .ok());
  };
  push(0, 1, 200);
  push(1, 1, 100);
  push(2, 1, 300);
  // Withheld pushes add no samples, so their progress does not count.
  ASSERT_TRUE(PushWithheld(0, 2).ok());
  push(1, 2, 600);
  push(2, 2, 500);
  // Slot 0 received these samples long ago, so their progress is only 90. But the progress of the
  // rounds does not decrease.
  push(0, 3, 90);
  push(1, 3, 800);
  push(2, 3, 700);
  ASSERT_EQ(journal_.entries.size(), 3u);
  EXPECT_EQ(journal_.entries[0].terms.progress, 100u);
  EXPECT_EQ(journal_.entries[1].terms.progress, 500u);
  EXPECT_EQ(journal_.entries[2].terms.progress, 500u);
}

TEST_F(SyncPushTest, ARepeatedPushCountsOnce) {
  Make(1);
  SetLive({{0, 0}, {1, 0}});
  EXPECT_EQ(GetVerdict(0, 1, 2), ACCEPTED);
  const absl::StatusOr<PushDecision> repeat = Push(0, 1, 2);
  ASSERT_TRUE(repeat.ok()) << repeat.status();
  EXPECT_TRUE(repeat->duplicate);
  EXPECT_EQ(repeat->verdict, ACCEPTED);
  GetVerdict(1, 1, 2);
  EXPECT_THAT(Values(), Each(FloatEq(-2)));
  EXPECT_TRUE(Push(0, 1, 2)->duplicate) << "after the round as well";
  EXPECT_EQ(GetVersion(), 1);
}

TEST_F(SyncPushTest, TheBackupWorkersGradientIsLate) {
  Make(1, /*backup_workers=*/1);
  SetLive({{0, 0}, {1, 0}, {2, 0}});
  GetVerdict(0, 1, 2);
  EXPECT_EQ(GetVersion(), 0);
  GetVerdict(1, 1, 4);
  EXPECT_THAT(Values(), Each(FloatEq(-3))) << "two of three are enough";
  EXPECT_EQ(GetVerdict(2, 1, 100), LATE);
  EXPECT_THAT(Values(), Each(FloatEq(-3)));
  EXPECT_EQ(GetVersion(), 1);
  EXPECT_EQ(journal_.entries.back().kind, BlockRecord::Kind::kLedger)
      << "LATE survives a restart of the process";
  EXPECT_THAT(journal_.entries.back().slots, ElementsAre(2));
}

TEST_F(SyncPushTest, WaitsAGraceTimeAfterTheQuorum) {
  Make(2, /*backup_workers=*/1, /*grace_part=*/0.5);
  SetLive({{0, 0}, {1, 0}, {2, 0}});
  EXPECT_EQ(sync_->next_due(), absl::InfiniteDuration());
  clock_.Advance(absl::Milliseconds(60));
  GetVerdict(0, 1, 2);
  EXPECT_EQ(sync_->next_due(), absl::InfiniteDuration()) << "one of three is no quorum";
  GetVerdict(1, 1, 4);
  const absl::Duration began = clock_.Now();
  EXPECT_EQ(sync_->next_due(), began + absl::Milliseconds(30));
  clock_.Advance(absl::Milliseconds(10));
  // Block 1 reaches its quorum 10 ms after block 0.
  GetVerdict(0, 1, 2, /*samples=*/1, /*block=*/1);
  GetVerdict(1, 1, 4, /*samples=*/1, /*block=*/1);
  clock_.Advance(absl::Milliseconds(19));
  EndRounds();
  EXPECT_EQ(GetVersion(0), 0);
  clock_.Advance(absl::Milliseconds(1));
  EndRounds();
  EXPECT_EQ(GetVersion(0), 1);
  EXPECT_THAT(Values(0), Each(FloatEq(-3)));
  EXPECT_EQ(GetVersion(1), 0);
  EXPECT_EQ(sync_->next_due(), began + absl::Milliseconds(45));
  EXPECT_EQ(GetVerdict(2, 1, 9, /*samples=*/1, /*block=*/0), LATE);
  // Pushes within the grace time belong to the round. The round ends when all slots have pushed.
  EXPECT_EQ(GetVerdict(2, 1, 9, /*samples=*/1, /*block=*/1), ACCEPTED);
  EXPECT_EQ(GetVersion(1), 1);
  EXPECT_THAT(Values(1), Each(FloatEq(-5)));
}

TEST_F(SyncPushTest, TheGraceTimeFollowsTheQuorumTime) {
  Make(1, /*backup_workers=*/1, /*grace_part=*/0.5);
  SetLive({{0, 0}, {1, 0}, {2, 0}});
  clock_.Advance(absl::Milliseconds(60));
  GetVerdict(0, 1, 2);
  clock_.Advance(absl::Milliseconds(20));
  GetVerdict(1, 1, 4);
  EXPECT_EQ(sync_->next_due(), clock_.Now() + absl::Milliseconds(40));
  clock_.Advance(absl::Milliseconds(39));
  EndRounds();
  EXPECT_EQ(GetVersion(), 0);
  EXPECT_EQ(GetVerdict(2, 1, 6), ACCEPTED);
  EXPECT_EQ(GetVersion(), 1);
  // The next round reaches its quorum after 12 ms, so its grace time is 6 ms.
  clock_.Advance(absl::Milliseconds(12));
  GetVerdict(0, 2, 2);
  GetVerdict(1, 2, 4);
  clock_.Advance(absl::Milliseconds(5));
  EndRounds();
  EXPECT_EQ(GetVersion(), 1);
  clock_.Advance(absl::Milliseconds(1));
  EndRounds();
  EXPECT_EQ(GetVersion(), 2);
  EXPECT_EQ(GetVerdict(2, 2, 6), LATE);
}

TEST_F(SyncPushTest, TheGraceTimeIgnoresASlowSlot) {
  Make(1, /*backup_workers=*/1, /*grace_part=*/1);
  SetLive({{0, 0}, {1, 0}, {2, 0}});
  const auto quorum = [this](Step step) {
    clock_.Advance(absl::Milliseconds(30));
    GetVerdict(0, step, 2);
    GetVerdict(1, step, 4);
  };
  quorum(1);
  EXPECT_EQ(GetVersion(), 0) << "no slot is behind in the first round";
  clock_.Advance(absl::Milliseconds(30));
  EndRounds();
  EXPECT_EQ(GetVersion(), 1);
  quorum(2);
  EXPECT_EQ(GetVersion(), 2) << "slot 2 did not push for round 1";
  quorum(3);
  EXPECT_EQ(GetVersion(), 3);
  EXPECT_EQ(GetVerdict(2, 1, 9), LATE);
  quorum(4);
  EXPECT_EQ(GetVersion(), 4) << "it was late for round 1, not for round 3";
  EXPECT_EQ(GetVerdict(2, 4, 9), LATE);
  quorum(5);
  EXPECT_EQ(GetVersion(), 4) << "late for the last round, so expected in this one";
  EXPECT_EQ(GetVerdict(2, 5, 9), ACCEPTED);
  EXPECT_EQ(GetVersion(), 5);
  quorum(6);
  EXPECT_EQ(GetVersion(), 5);
  // Slots that enter are expected only from the current round on.
  SetLive({{0, 5}, {1, 5}, {3, 5}});
  EXPECT_EQ(GetVersion(), 5);
  EXPECT_EQ(GetVerdict(3, 6, 6), ACCEPTED);
  EXPECT_EQ(GetVersion(), 6);
}

TEST_F(SyncPushTest, TheQuorumChangesWhenSlotsEnterOrLeave) {
  Make(1, /*backup_workers=*/1, /*grace_part=*/1);
  SetLive({{0, 0}, {1, 0}});
  clock_.Advance(absl::Milliseconds(30));
  GetVerdict(0, 1, 2);
  clock_.Advance(absl::Milliseconds(20));
  SetLive({{0, 0}, {1, 0}, {2, 0}});
  clock_.Advance(absl::Milliseconds(20));
  EndRounds();
  EXPECT_EQ(GetVersion(), 0) << "two are missing";
  SetLive({{0, 0}, {1, 0}});
  EndRounds();
  EXPECT_EQ(GetVersion(), 0) << "the grace time begins now";
  clock_.Advance(absl::Milliseconds(70));
  EndRounds();
  EXPECT_EQ(GetVersion(), 1);
}

TEST_F(SyncPushTest, TheGradientOfADeadSlotStaysInTheRound) {
  Make(1);
  SetLive({{0, 0}, {1, 0}, {2, 0}});
  GetVerdict(0, 1, 3);
  GetVerdict(1, 1, 9);
  EXPECT_EQ(GetVersion(), 0);
  SetLive({{1, 0}, {2, 0}});
  EXPECT_EQ(GetVersion(), 0) << "slot 2 lives";
  SetLive({{1, 0}});
  EXPECT_THAT(Values(), Each(FloatEq(-6))) << "slot 0's gradient is in the mean";
}

TEST_F(SyncPushTest, RefusesAStepAheadOfTheRound) {
  Make(2);
  SetLive({{0, 0}});
  GetVerdict(0, 1, 1, 1, /*block=*/0);
  EXPECT_EQ(sync_->completed_rounds(), 0) << "block 1 collects step 1";
  const absl::Status early = Push(0, 2, 1, 1, /*block=*/0).status();
  EXPECT_TRUE(absl::IsInvalidArgument(early)) << early;
  GetVerdict(0, 1, 1, 1, /*block=*/1);
  EXPECT_EQ(sync_->completed_rounds(), 1);
  EXPECT_EQ(GetVerdict(0, 2, 1, 1, /*block=*/0), ACCEPTED);
}

TEST_F(SyncPushTest, ASuccessorsPushWaitsForTheRound) {
  Make(1);
  SetLive({{0, 0}, {1, 0}});
  GetVerdict(0, 1, 5);
  const absl::Status wait = Push(0, 1, 7, 1, 0, /*incarnation=*/2).status();
  EXPECT_TRUE(absl::IsUnavailable(wait)) << wait;
  EXPECT_THAT(std::string(wait.message()), HasSubstr("push again after that step"));
  GetVerdict(1, 1, 5);
  EXPECT_THAT(Values(), Each(FloatEq(-5))) << "the slot contributed once";
  EXPECT_EQ(Push(0, 1, 7, 1, 0, /*incarnation=*/2)->verdict, LATE);
}

TEST_F(SyncPushTest, AWithheldPushHasNoWeight) {
  Make(1);
  SetLive({{0, 0}, {1, 0}});
  EXPECT_EQ(PushWithheld(0, 1)->verdict, WITHHELD);
  GetVerdict(1, 1, 4, /*samples=*/2);
  EXPECT_THAT(Values(), Each(FloatEq(-4))) << "the mean of the pushed gradients";

  EXPECT_EQ(PushWithheld(0, 2)->verdict, WITHHELD);
  EXPECT_EQ(PushWithheld(1, 2)->verdict, WITHHELD);
  EXPECT_THAT(Values(), Each(FloatEq(-4))) << "a round without gradients changes nothing";
  EXPECT_EQ(GetVersion(), 2);
  EXPECT_EQ(journal_.entries.back().kind, BlockRecord::Kind::kPassed);
  EXPECT_EQ(journal_.entries.back().version_before, 1);
}

TEST_F(SyncPushTest, SkipsRoundsThatAllSlotsFinishedElsewhere) {
  Make(1);
  // Another server is ahead, so both slots have finished rounds that this server has not ended.
  SetLive({{0, 3}, {1, 5}});
  EXPECT_EQ(GetVersion(), 3) << "up to the slowest slot, which pushes step 4 next";
  EXPECT_THAT(Values(), Each(0));
  EXPECT_EQ(sync_->completed_rounds(), 3);
  GetVerdict(0, 4, 2);
  EXPECT_THAT(Values(), Each(FloatEq(-2))) << "slot 1 is not behind: it pushed step 4 elsewhere";
  EXPECT_EQ(GetVersion(), 4);
}

TEST_F(SyncPushTest, WithoutLiveSlotsNothingChanges) {
  Make(1);
  SetLive({});
  EXPECT_EQ(GetVersion(), 0);
  EXPECT_EQ(sync_->completed_rounds(), 0);
}

TEST_F(SyncPushTest, AStepIsSettledOnlyWhenItsRoundEnds) {
  Make(1);
  SetLive({{0, 0}, {1, 0}});
  GetVerdict(0, 1, 1);
  {
    MutexLock lock(&blocks_[0]->mutex);
    EXPECT_EQ(blocks_[0]->ledger[0].last_step, 1);
    EXPECT_EQ(sync_->SettledLedger(*blocks_[0])[0], LedgerEntry())
        << "the gradient is not applied yet";
  }
  GetVerdict(1, 1, 1);
  MutexLock lock(&blocks_[0]->mutex);
  EXPECT_EQ(sync_->SettledLedger(*blocks_[0])[0].last_step, 1);
}

TEST_F(SyncPushTest, RestoredBlocksContinueAtTheNewestBlocksRound) {
  Make(3);
  const std::vector<Version> saved = {7, 4, 6};
  for (size_t i = 0; i < saved.size(); ++i) {
    MutexLock lock(&blocks_[i]->mutex);
    const BlockChange change(blocks_[i].get());
    blocks_[i]->version = saved[i];
  }
  for (const auto& block : blocks_) {
    MutexLock lock(&block->mutex);
    sync_->TakeRestored(block.get(), /*highest=*/7);
  }
  EXPECT_EQ(GetVersion(0), 7);
  EXPECT_EQ(GetVersion(1), 6) << "step 7 may be in progress there";
  EXPECT_EQ(GetVersion(2), 6);
  EXPECT_EQ(sync_->completed_rounds(), 6);
  SetLive({{0, 6}});
  EXPECT_EQ(GetVerdict(0, 7, 1, 1, /*block=*/0), LATE);
  EXPECT_EQ(GetVerdict(0, 7, 1, 1, /*block=*/1), ACCEPTED);
  EXPECT_EQ(GetVerdict(0, 7, 1, 1, /*block=*/2), ACCEPTED);
  EXPECT_EQ(sync_->completed_rounds(), 7);
}

TEST_F(SyncPushTest, AbsentElementsCountAsZeroInTheMean) {
  Make(1);
  SetLive({{0, 0}, {1, 0}});
  ASSERT_TRUE(PushPartly(0, 1, -1.0f, {{0, 1}}).ok());
  ASSERT_TRUE(PushPartly(1, 1, -3.0f, {{1, 2}}).ok());
  MutexLock lock(&blocks_[0]->mutex);
  EXPECT_EQ(blocks_[0]->version, 1);
  EXPECT_THAT(blocks_[0]->values, ElementsAre(FloatEq(1.5f), FloatEq(0.5f)));
  EXPECT_TRUE(blocks_[0]->missed.empty()) << "each element had one gradient";
}

TEST_F(SyncPushTest, SkipsElementsAbsentFromAllSlots) {
  Make(1);
  SetLive({{0, 0}, {1, 0}, {2, 0}});
  ASSERT_TRUE(PushPartly(0, 1, 5.0f, {{0, 2}}).ok());
  const auto decision = PushPartly(1, 1, -3.0f, {{0, 1}});
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->verdict, ACCEPTED);
  // A withheld push has no table of absent elements. Element 0, absent in all other gradients, must
  // not count as present because of this push.
  ASSERT_TRUE(PushWithheld(2, 1).ok());
  {
    MutexLock lock(&blocks_[0]->mutex);
    EXPECT_EQ(blocks_[0]->version, 1);
    EXPECT_THAT(blocks_[0]->values, ElementsAre(0.0f, FloatEq(1.5f)));
    EXPECT_THAT(blocks_[0]->missed.runs(), ElementsAre(MissedRun{0, 1, 1}));
  }
  for (const SlotId slot : {0, 1, 2}) ASSERT_TRUE(PushPartly(slot, 2, 0.0f, {{0, 2}}).ok());
  MutexLock lock(&blocks_[0]->mutex);
  EXPECT_EQ(blocks_[0]->version, 2) << "the round still ends";
  EXPECT_THAT(blocks_[0]->values, ElementsAre(0.0f, FloatEq(1.5f)));
  EXPECT_THAT(blocks_[0]->missed.runs(), ElementsAre(MissedRun{0, 1, 2}, MissedRun{1, 2, 1}));
}

TEST_F(SyncPushTest, ARepeatedAbsentPushIsADuplicate) {
  Make(1);
  SetLive({{0, 0}, {1, 0}});
  ASSERT_TRUE(PushPartly(0, 1, 0.0f, {{0, 2}}).ok());
  const auto again = PushPartly(0, 1, 0.0f, {{0, 2}});
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->duplicate);
  EXPECT_EQ(again->verdict, ACCEPTED);
}

}  // namespace
}  // namespace torchps
