#include "torchps/server/store/batch_push.h"

#include <algorithm>
#include <functional>
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
using ::testing::SizeIs;

class BatchJournal final : public BlockJournal {
 public:
  struct Entry {
    BlockRecord::Kind kind;
    std::vector<SlotId> slots;
    GradientTerms terms;
    std::vector<float> elements;
  };
  void Record(const Block& block, const BlockRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) override {
    (void)block;  // named only for the lock annotation
    entries.push_back({record.kind,
                       {record.slots.begin(), record.slots.end()},
                       record.terms,
                       {record.elements.begin(), record.elements.end()}});
  }
  void WhenDurable(std::function<void()> continuation) override { continuation(); }

  std::vector<Entry> entries;
};

// Blocks of two elements under plain SGD with rate 1 and values of 0, so that a gradient of 1
// subtracts 1. A whole batch is 12 samples, by default with three slots.
class BatchPushTest : public ::testing::Test {
 protected:
  void Make(BatchPush::Options options = {/*batch_samples=*/12}, int count = 1, int slots = 3) {
    Segment segment;
    segment.name = "weight";
    segment.shape = {2 * count};
    layout_ = *ModelLayout::Create({segment});
    map_ = *BlockMap::Create(layout_, 2 * sizeof(float), /*servers=*/1);
    OptimizerSpec spec;
    spec.mutable_sgd();
    spec.set_learning_rate(1.0);
    updater_ = *BlockUpdater::Create(spec, layout_, map_, slots);
    policy_ = std::make_unique<BatchPush>(count, options, updater_.get(), &clock_);
    policy_->SetJournal(&journal_);
    for (const BlockRange& range : map_.blocks()) {
      blocks_.push_back(std::make_unique<Block>(range));
      Block& block = *blocks_.back();
      MutexLock lock(&block.mutex);
      updater_->Allocate(&block);
      const BlockChange change(&block);
      std::fill(block.values.begin(), block.values.end(), 0.0f);
    }
    SetLive(slots);
  }

  void SetLive(int slots) {
    std::vector<LiveSlot> live;
    for (int slot = 0; slot < slots; ++slot) live.push_back({slot, 0});
    policy_->SetLive(live);
    Reconsider();
  }

  void Reconsider() {
    for (const auto& block : blocks_) {
      MutexLock lock(&block->mutex);
      policy_->Reconsider(block.get());
    }
  }

  PushHeader Header(SlotId slot, Step step, Version base, uint32_t samples) {
    PushHeader header;
    header.slot = slot;
    header.incarnation = 1;
    header.step = step;
    header.base_version = base;
    header.weight = samples;
    return header;
  }

  absl::StatusOr<PushDecision> Push(PushHeader header, float gradient) {
    Block& block = *blocks_[header.block];
    MutexLock lock(&block.mutex);
    return policy_->Push(
        &block, header,
        header.withheld ? FramePayload() : MakePayload(std::vector<float>(2, gradient)));
  }

  Verdict GetVerdict(SlotId slot, Step step, Version base, uint32_t samples, float gradient) {
    const absl::StatusOr<PushDecision> decision = Push(Header(slot, step, base, samples), gradient);
    EXPECT_TRUE(decision.ok()) << decision.status();
    return decision.ok() ? decision->verdict : VERDICT_UNSPECIFIED;
  }

  // Advances the clock by `passed` and runs the server's periodic update.
  void After(absl::Duration passed) {
    clock_.Advance(passed);
    if (policy_->TakeDue()) Reconsider();
  }

  float Value(int block = 0) {
    MutexLock lock(&blocks_[block]->mutex);
    return blocks_[block]->values[0];
  }
  Version GetVersion(int block = 0) {
    MutexLock lock(&blocks_[block]->mutex);
    return blocks_[block]->version;
  }
  Step SettledStep(SlotId slot, int block = 0) {
    MutexLock lock(&blocks_[block]->mutex);
    return policy_->SettledLedger(*blocks_[block])[slot].last_step;
  }

  ManualClock clock_;
  BatchJournal journal_;
  ModelLayout layout_;
  BlockMap map_;
  std::unique_ptr<BlockUpdater> updater_;
  std::unique_ptr<BatchPush> policy_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

TEST_F(BatchPushTest, AppliesTheMeanOfAWholeBatch) {
  Make();
  EXPECT_EQ(GetVerdict(0, 1, 0, 6, 1.0f), ACCEPTED);
  EXPECT_EQ(GetVerdict(1, 1, 0, 2, 4.0f), ACCEPTED);
  EXPECT_EQ(GetVersion(), 0);
  EXPECT_EQ(Value(), 0.0f);
  EXPECT_EQ(GetVerdict(2, 1, 0, 4, 2.0f), ACCEPTED);
  EXPECT_EQ(GetVersion(), 1);
  EXPECT_FLOAT_EQ(Value(), -(6 * 1.0f + 2 * 4.0f + 4 * 2.0f) / 12);
  EXPECT_EQ(policy_->update_counts().made, 1u);
  EXPECT_EQ(policy_->update_counts().early, 0u);
}

TEST_F(BatchPushTest, AnUpdateNeedsTheSamplesOfABatchNotEverySlot) {
  Make();
  GetVerdict(0, 1, 0, 8, 1.0f);
  EXPECT_EQ(GetVersion(), 0);
  GetVerdict(1, 1, 0, 4, 1.0f);
  EXPECT_EQ(GetVersion(), 1) << "slot 2 does not matter";
  EXPECT_FLOAT_EQ(Value(), -1.0f);
}

TEST_F(BatchPushTest, ABatchMayLackOneSample) {
  Make();
  GetVerdict(0, 1, 0, 6, 1.0f);
  GetVerdict(1, 1, 0, 5, 1.0f);
  EXPECT_EQ(GetVersion(), 1);
  EXPECT_FLOAT_EQ(Value(), -1.0f) << "counts as a whole batch";
  EXPECT_EQ(policy_->update_counts().early, 0u);
}

TEST_F(BatchPushTest, WithOneSlotABatchMayNotLackASample) {
  Make({/*batch_samples=*/12}, /*count=*/1, /*slots=*/1);
  GetVerdict(0, 1, 0, 11, 1.0f);
  // The slot is the only live one, so the update is made early with the samples that arrived.
  EXPECT_EQ(GetVersion(), 1);
  EXPECT_FLOAT_EQ(Value(), -11.0f / 12);
  EXPECT_EQ(policy_->update_counts().early, 1u);
}

TEST_F(BatchPushTest, WithSharesOfOneSampleABatchMayNotLackASample) {
  Make({/*batch_samples=*/3});
  GetVerdict(0, 1, 0, 1, 1.0f);
  GetVerdict(1, 1, 0, 1, 1.0f);
  EXPECT_EQ(GetVersion(), 0);
  GetVerdict(2, 1, 0, 1, 1.0f);
  EXPECT_EQ(GetVersion(), 1);
}

TEST_F(BatchPushTest, APushMayCountForMoreSamplesThanItHas) {
  Make();
  PushHeader header = Header(0, 1, 0, 3);
  header.share = 6;
  ASSERT_TRUE(Push(header, 2.0f).ok());
  GetVerdict(1, 1, 0, 6, 1.0f);
  EXPECT_EQ(GetVersion(), 1);
  EXPECT_FLOAT_EQ(Value(), -(3 * 2.0f + 6 * 1.0f) / 9) << "the mean of nine samples";
  EXPECT_EQ(policy_->update_counts().early, 0u);
}

TEST_F(BatchPushTest, APushThatCountsForAWholeBatchMakesAnUpdate) {
  Make();
  PushHeader header = Header(0, 1, 0, 3);
  header.share = 12;
  ASSERT_TRUE(Push(header, 2.0f).ok());
  EXPECT_EQ(GetVersion(), 1) << "the other slots do not contribute";
  EXPECT_FLOAT_EQ(Value(), -2.0f);
  EXPECT_EQ(policy_->update_counts().early, 0u);
}

TEST_F(BatchPushTest, TheLastBatchIsWholeInAnyOrder) {
  for (const bool last_comes_first : {true, false}) {
    SCOPED_TRACE(last_comes_first);
    blocks_.clear();
    Make();
    // The third slot gets no more work, so it has left.
    SetLive(2);
    PushHeader last = Header(1, 1, 0, 2);
    last.share = 13;
    if (last_comes_first) {
      ASSERT_TRUE(Push(last, 1.0f).ok());
      EXPECT_EQ(GetVersion(), 0);
    }
    GetVerdict(0, 1, 0, 4, 4.0f);
    if (!last_comes_first) {
      ASSERT_TRUE(Push(last, 1.0f).ok());
    }
    EXPECT_EQ(GetVersion(), 1);
    EXPECT_FLOAT_EQ(Value(), -(4 * 4.0f + 2 * 1.0f) / 6);
    EXPECT_EQ(policy_->update_counts().early, 0u);
  }
}

TEST_F(BatchPushTest, TheBatchGrowsWithTheLiveSlots) {
  BatchPush::Options options;
  options.batch_samples = 4;
  options.per_slot = true;
  Make(options);
  GetVerdict(0, 1, 0, 4, 1.0f);
  GetVerdict(1, 1, 0, 4, 1.0f);
  EXPECT_EQ(GetVersion(), 0);
  SetLive(2);
  EXPECT_EQ(GetVersion(), 1);
  EXPECT_FLOAT_EQ(Value(), -1.0f);
}

TEST_F(BatchPushTest, ALateGradientCountsInTheNextUpdate) {
  Make();
  GetVerdict(0, 1, 0, 8, 1.0f);
  GetVerdict(1, 1, 0, 4, 1.0f);
  const absl::StatusOr<PushDecision> late = Push(Header(2, 1, 0, 4), 4.0f);
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(late->verdict, ACCEPTED);
  EXPECT_EQ(late->lag, 1);
  GetVerdict(0, 2, 1, 8, 1.0f);
  EXPECT_EQ(GetVersion(), 2);
  EXPECT_FLOAT_EQ(Value(), -1.0f - (4 * 4.0f + 8 * 1.0f) / 12);
}

TEST_F(BatchPushTest, RejectsAGradientOlderThanTheBound) {
  Make();
  for (Step step = 1; step <= 2; ++step) {
    GetVerdict(0, step, step - 1, 8, 1.0f);
    GetVerdict(1, step, step - 1, 4, 1.0f);
  }
  ASSERT_EQ(GetVersion(), 2);
  EXPECT_EQ(GetVerdict(2, 1, 0, 4, 100.0f), REJECTED_STALE);
  EXPECT_TRUE(policy_->IsSettled(2, 1));
  EXPECT_EQ(GetVerdict(2, 1, 0, 4, 100.0f), REJECTED_STALE);
  GetVerdict(0, 3, 2, 12, 1.0f);
  EXPECT_FLOAT_EQ(Value(), -3.0f);
  EXPECT_EQ(SettledStep(2), 1) << "the refusal is in the ledger";
}

TEST_F(BatchPushTest, ABoundOfZeroRejectsLateGradients) {
  BatchPush::Options options{/*batch_samples=*/12};
  options.bound = 0;
  Make(options);
  GetVerdict(0, 1, 0, 12, 1.0f);
  EXPECT_EQ(GetVerdict(1, 1, 0, 4, 1.0f), REJECTED_STALE);
}

TEST_F(BatchPushTest, WithoutABoundEveryGradientCounts) {
  BatchPush::Options options{/*batch_samples=*/12};
  options.bound = -1;
  Make(options);
  for (Step step = 1; step <= 20; ++step) GetVerdict(0, step, step - 1, 12, 0.0f);
  EXPECT_EQ(GetVerdict(1, 1, 0, 4, 1.0f), ACCEPTED);
}

TEST_F(BatchPushTest, MakesAnEarlyUpdateOnceEveryLiveSlotPushed) {
  Make();
  GetVerdict(0, 1, 0, 4, 1.0f);
  GetVerdict(1, 1, 0, 4, 1.0f);
  EXPECT_EQ(GetVersion(), 0);
  SetLive(2);
  EXPECT_EQ(GetVersion(), 1) << "slot 2 has died";
  EXPECT_FLOAT_EQ(Value(), -8.0f / 12) << "the missing samples count as a gradient of zero";
  EXPECT_EQ(policy_->update_counts().early, 1u);
}

TEST_F(BatchPushTest, WaitsOneUsualStepForHalfABatch) {
  Make();
  GetVerdict(0, 1, 0, 4, 1.0f);
  policy_->AwaitUpdate(0, absl::Seconds(1), /*is_whole=*/true);
  GetVerdict(1, 1, 0, 4, 1.0f);
  policy_->AwaitUpdate(1, absl::Seconds(3), /*is_whole=*/true);
  EXPECT_EQ(policy_->next_due(), clock_.Now() + absl::Seconds(1));
  After(absl::Milliseconds(999));
  EXPECT_EQ(GetVersion(), 0);
  After(absl::Milliseconds(1));
  EXPECT_EQ(GetVersion(), 1);
  EXPECT_FLOAT_EQ(Value(), -8.0f / 12);
  ASSERT_THAT(journal_.entries, SizeIs(1));
  EXPECT_DOUBLE_EQ(journal_.entries[0].terms.gradient_factor, 8.0 / 12);
  EXPECT_THAT(journal_.entries[0].slots, ElementsAre(0, 1));
  EXPECT_THAT(journal_.entries[0].elements, Each(FloatEq(1.0f)));
  EXPECT_EQ(policy_->next_due(), absl::InfiniteDuration());
}

TEST_F(BatchPushTest, WaitsLongerForSmallerPartsOfABatch) {
  Make();
  GetVerdict(0, 1, 0, 1, 1.0f);
  policy_->AwaitUpdate(0, absl::Seconds(1), /*is_whole=*/true);
  for (int turn = 1; turn <= 3; ++turn) {
    After(absl::Seconds(1));
    EXPECT_EQ(GetVersion(), 0) << "after turn " << turn << " a sample of 12 is too little";
  }
  After(absl::Seconds(1));
  EXPECT_EQ(GetVersion(), 1);
  EXPECT_FLOAT_EQ(Value(), -1.0f / 12);
}

TEST_F(BatchPushTest, PatienceIsAMultipleOfTheUsualStep) {
  BatchPush::Options options{/*batch_samples=*/12};
  options.patience = 2.5;
  Make(options);
  GetVerdict(0, 1, 0, 6, 1.0f);
  policy_->AwaitUpdate(0, absl::Seconds(2), /*is_whole=*/true);
  EXPECT_EQ(policy_->next_due(), clock_.Now() + absl::Seconds(5));
}

TEST_F(BatchPushTest, WaitsAtLeastFiftyMilliseconds) {
  Make();
  GetVerdict(0, 1, 0, 6, 1.0f);
  policy_->AwaitUpdate(0, absl::Milliseconds(2), /*is_whole=*/true);
  EXPECT_EQ(policy_->next_due(), clock_.Now() + absl::Milliseconds(50));
}

TEST_F(BatchPushTest, WithoutAKnownStepTimeWaitsWithoutALimit) {
  Make();
  GetVerdict(0, 1, 0, 6, 1.0f);
  policy_->AwaitUpdate(0, absl::InfiniteDuration(), /*is_whole=*/true);
  EXPECT_EQ(policy_->next_due(), absl::InfiniteDuration());
  After(absl::Hours(1));
  EXPECT_EQ(GetVersion(), 0);
}

TEST_F(BatchPushTest, AfterAPauseOfTheServerAPushWaitsOneMoreTurn) {
  Make();
  GetVerdict(0, 1, 0, 2, 1.0f);
  policy_->AwaitUpdate(0, absl::Milliseconds(70), /*is_whole=*/true);
  After(absl::Seconds(10));
  EXPECT_EQ(GetVersion(), 0) << "pushes from that time are not read yet";
  EXPECT_EQ(policy_->next_due(), clock_.Now() + absl::Milliseconds(70));
}

TEST_F(BatchPushTest, AnUpdateEndsTheWait) {
  Make();
  GetVerdict(0, 1, 0, 6, 1.0f);
  policy_->AwaitUpdate(0, absl::Seconds(1), /*is_whole=*/true);
  GetVerdict(1, 1, 0, 6, 1.0f);
  EXPECT_EQ(policy_->next_due(), absl::InfiniteDuration());
  // The second push has not ended yet, and its wait starts when it ends.
  GetVerdict(0, 2, 1, 6, 1.0f);
  EXPECT_EQ(policy_->next_due(), absl::InfiniteDuration());
}

// The stalled slot's blocks are in different updates. Without a correction, each slot would wait
// for another one in every later step.
TEST_F(BatchPushTest, AStalledSlotRecoversAfterOneUpdate) {
  Make({/*batch_samples=*/12}, /*count=*/2);
  const auto push_block = [&](SlotId slot, Step step, Version base, int block) {
    PushHeader header = Header(slot, step, base, 4);
    header.block = block;
    EXPECT_TRUE(Push(header, 1.0f).ok());
  };
  const auto push = [&](SlotId slot, Step step, Version base) {
    for (const int block : {0, 1}) push_block(slot, step, base, block);
    policy_->AwaitUpdate(slot, absl::Seconds(1), /*is_whole=*/true);
    Reconsider();
  };
  push_block(2, 1, 0, /*block=*/0);
  push(0, 1, 0);
  push(1, 1, 0);
  EXPECT_EQ(GetVersion(0), 1);
  EXPECT_EQ(GetVersion(1), 0);
  After(absl::Seconds(1));
  EXPECT_EQ(GetVersion(1), 1) << "early";
  policy_->PullBegan(0);
  policy_->PullBegan(1);
  push_block(2, 1, 0, /*block=*/1);
  policy_->AwaitUpdate(2, absl::Seconds(1), /*is_whole=*/true);
  push(0, 2, 1);
  push(1, 2, 1);
  EXPECT_EQ(GetVersion(0), 2) << "slot 2 waits for block 1, so block 0 does not wait for it";
  EXPECT_EQ(GetVersion(1), 2);
  for (const SlotId slot : {0, 1, 2}) EXPECT_TRUE(policy_->IsSettled(slot, 2));
  // The slots are in step again: a block is not updated before the last of the three pushes.
  for (const SlotId slot : {0, 1, 2}) policy_->PullBegan(slot);
  push(0, 3, 2);
  push(1, 3, 2);
  EXPECT_EQ(GetVersion(0), 2);
  push(2, 2, 2);
  EXPECT_EQ(GetVersion(0), 3);
  EXPECT_EQ(GetVersion(1), 3);
}

TEST_F(BatchPushTest, DoesNotWaitForASlotThatAnotherServerBlocks) {
  Make();
  GetVerdict(0, 1, 0, 4, 1.0f);
  GetVerdict(1, 1, 0, 4, 1.0f);
  GetVerdict(2, 1, 0, 4, 1.0f);
  for (const SlotId slot : {0, 1, 2}) policy_->AwaitUpdate(slot, absl::Seconds(1), true);
  policy_->PullBegan(0);
  policy_->PullBegan(1);
  GetVerdict(0, 2, 1, 4, 1.0f);
  clock_.Advance(absl::Milliseconds(49));
  GetVerdict(1, 2, 1, 4, 1.0f);
  EXPECT_EQ(GetVersion(), 1) << "its pull may be in flight";
  clock_.Advance(absl::Milliseconds(1));
  Reconsider();
  EXPECT_EQ(GetVersion(), 2);
  EXPECT_FLOAT_EQ(Value(), -1.0f - 8.0f / 12);
}

TEST_F(BatchPushTest, APushIsSettledWhenAllItsBlocksAreUpdated) {
  Make({/*batch_samples=*/12}, /*count=*/2);
  for (int block = 0; block < 2; ++block) {
    PushHeader header = Header(0, 1, 0, 6);
    header.block = block;
    ASSERT_TRUE(Push(header, 1.0f).ok());
  }
  EXPECT_FALSE(policy_->IsSettled(0, 1));
  PushHeader header = Header(1, 1, 0, 6);
  ASSERT_TRUE(Push(header, 1.0f).ok());
  EXPECT_EQ(GetVersion(0), 1);
  EXPECT_EQ(GetVersion(1), 0);
  EXPECT_FALSE(policy_->IsSettled(0, 1));
  header.block = 1;
  ASSERT_TRUE(Push(header, 1.0f).ok());
  EXPECT_TRUE(policy_->IsSettled(0, 1));
  EXPECT_TRUE(policy_->IsSettled(1, 1));
}

TEST_F(BatchPushTest, TheSettledLedgerExcludesCollectedGradients) {
  Make();
  GetVerdict(0, 1, 0, 4, 1.0f);
  EXPECT_EQ(SettledStep(0), 0);
  EXPECT_THAT(journal_.entries, SizeIs(0));
  GetVerdict(1, 1, 0, 8, 1.0f);
  EXPECT_EQ(SettledStep(0), 1);
  ASSERT_THAT(journal_.entries, SizeIs(1));
  EXPECT_EQ(journal_.entries[0].kind, BlockRecord::Kind::kGradient);
}

TEST_F(BatchPushTest, ARepeatedPushChangesNothing) {
  Make();
  GetVerdict(0, 1, 0, 6, 1.0f);
  const absl::StatusOr<PushDecision> again = Push(Header(0, 1, 0, 6), 1.0f);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->duplicate);
  EXPECT_EQ(GetVersion(), 0);
  GetVerdict(1, 1, 0, 6, 1.0f);
  EXPECT_FLOAT_EQ(Value(), -1.0f);
}

TEST_F(BatchPushTest, ASlotContributesOnceToAnUpdate) {
  Make();
  GetVerdict(0, 1, 0, 4, 1.0f);
  PushHeader successor = Header(0, 1, 0, 4);
  successor.incarnation = 2;
  EXPECT_TRUE(absl::IsUnavailable(Push(successor, 1.0f).status()));
  GetVerdict(1, 1, 0, 8, 1.0f);
  ASSERT_EQ(GetVersion(), 1);
  EXPECT_TRUE(Push(successor, 1.0f).ok());
}

TEST_F(BatchPushTest, AWithheldPushCountsForTheBatchWithoutAGradient) {
  Make();
  PushHeader header = Header(0, 1, 0, 4);
  header.withheld = true;
  const absl::StatusOr<PushDecision> withheld = Push(header, 0.0f);
  ASSERT_TRUE(withheld.ok());
  EXPECT_EQ(withheld->verdict, WITHHELD);
  GetVerdict(1, 1, 0, 8, 3.0f);
  EXPECT_EQ(GetVersion(), 1);
  EXPECT_FLOAT_EQ(Value(), -3.0f);
}

TEST_F(BatchPushTest, SkipsABlockWithheldByAllSlots) {
  Make();
  for (const SlotId slot : {0, 1, 2}) {
    PushHeader header = Header(slot, 1, 0, 4);
    header.withheld = true;
    ASSERT_TRUE(Push(header, 0.0f).ok());
  }
  EXPECT_EQ(GetVersion(), 1);
  EXPECT_EQ(Value(), 0.0f);
  ASSERT_THAT(journal_.entries, SizeIs(1));
  EXPECT_EQ(journal_.entries[0].kind, BlockRecord::Kind::kPassed);
  EXPECT_TRUE(policy_->IsSettled(0, 1));
}

TEST_F(BatchPushTest, AGradientOnLostValuesHasNoLag) {
  Make();
  {
    MutexLock lock(&blocks_[0]->mutex);
    policy_->TakeRestored(blocks_[0].get(), /*highest=*/0);
  }
  const absl::StatusOr<PushDecision> decision = Push(Header(0, 8, /*base=*/7, 12), 1.0f);
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_EQ(decision->lag, 0);
  EXPECT_EQ(GetVersion(), 1);
}

TEST_F(BatchPushTest, RejectsABaseVersionAboveTheBlocksVersion) {
  Make();
  EXPECT_TRUE(absl::IsInvalidArgument(Push(Header(0, 1, 3, 4), 1.0f).status()));
}

TEST_F(BatchPushTest, TheGradientOfADeadSlotStillCounts) {
  Make();
  GetVerdict(2, 1, 0, 4, 3.0f);
  SetLive(2);
  GetVerdict(0, 1, 0, 4, 0.0f);
  EXPECT_EQ(GetVersion(), 0);
  GetVerdict(1, 1, 0, 4, 0.0f);
  EXPECT_FLOAT_EQ(Value(), -1.0f);
}

}  // namespace
}  // namespace torchps
