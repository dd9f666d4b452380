#include "torchps/server/store/async_push.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"

namespace torchps {
namespace {

using ::testing::Each;
using ::testing::FloatEq;

// Has a block of two elements and an averaged block, under plain SGD with rate 1. So a gradient of
// 1 subtracts 1.
class AsyncPushTest : public ::testing::Test {
 protected:
  void Make(const SampleScale& scale) {
    Segment segment;
    segment.name = "weight";
    segment.shape = {2};
    Segment mean;
    mean.name = "mean";
    mean.shape = {2};
    mean.averaged = true;
    layout_ = *ModelLayout::Create({segment, mean});
    map_ = *BlockMap::Create(layout_, 2 * sizeof(float), /*servers=*/1);
    OptimizerSpec spec;
    spec.mutable_sgd();
    spec.set_learning_rate(1.0);
    updater_ = *BlockUpdater::Create(spec, layout_, map_);
    LagContract contract;
    contract.set_policy(LagContract::WEIGH);
    contract.set_free_lag(1);
    async_ = std::make_unique<AsyncPush>(contract, scale, /*progress_slack=*/0, updater_.get());
    for (const BlockRange& range : map_.blocks()) {
      blocks_.push_back(std::make_unique<Block>(range));
      Block& block = *blocks_.back();
      MutexLock lock(&block.mutex);
      updater_->Allocate(&block);
      const BlockChange change(&block);
      std::fill(block.values.begin(), block.values.end(), 0.0f);
    }
  }

  // Pushes to the weight block (index 0) or the averaged block (index 1).
  PushDecision Push(Step step, Version base, uint32_t samples, int block_index = 0) {
    PushHeader header;
    header.incarnation = 1;
    header.step = step;
    header.base_version = base;
    header.weight = samples;
    Block& block = *blocks_[block_index];
    MutexLock lock(&block.mutex);
    const absl::StatusOr<PushDecision> decision =
        async_->Push(&block, header, MakePayload({1.0f, 1.0f}));
    EXPECT_TRUE(decision.ok()) << decision.status();
    return decision.value_or(PushDecision{});
  }

  std::vector<float> Values(int block_index = 0) {
    Block& block = *blocks_[block_index];
    MutexLock lock(&block.mutex);
    return {block.values.begin(), block.values.end()};
  }

  SampleScale OfOne() { return {SampleScale::Of::kRate, /*whole_step=*/32}; }
  SampleScale OfAll(SampleScale::Of of) { return {of, /*whole_step=*/128, /*is_of_all=*/true}; }
  void SetLive(int slots) {
    std::vector<LiveSlot> live;
    for (SlotId slot = 0; slot < slots; ++slot) live.push_back({slot, 0});
    async_->SetLive(live);
  }

  ModelLayout layout_;
  BlockMap map_;
  std::unique_ptr<BlockUpdater> updater_;
  std::unique_ptr<AsyncPush> async_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

TEST_F(AsyncPushTest, WithoutAScaleAPartialBatchUsesTheWholeRate) {
  Make(SampleScale());
  Push(1, /*base=*/0, /*samples=*/8);
  EXPECT_THAT(Values(), Each(FloatEq(-1)));
}

TEST_F(AsyncPushTest, ScalesTheRateByTheSamples) {
  Make(OfOne());
  EXPECT_EQ(Push(1, /*base=*/0, /*samples=*/8).verdict, ACCEPTED);
  EXPECT_THAT(Values(), Each(FloatEq(-0.25)));
  Push(2, /*base=*/1, /*samples=*/48);
  EXPECT_THAT(Values(), Each(FloatEq(-0.25 - 1.5)));
}

TEST_F(AsyncPushTest, ScalesRateBySamplesAndGradientByLag) {
  Make(OfOne());
  for (Step step = 1; step <= 4; ++step) Push(step, /*base=*/step - 1, /*samples=*/32);
  EXPECT_EQ(Push(5, /*base=*/0, /*samples=*/16).verdict, SCALED);
  EXPECT_THAT(Values(), Each(FloatEq(-4 - 0.5 / 4)));
}

// In plain SGD a factor of the gradient changes the values as much as a factor of the rate. So the
// test also checks which of the two is used.
TEST_F(AsyncPushTest, ScalesTheGradientOfLocalStepsByItsShare) {
  Make(OfAll(SampleScale::Of::kGradient));
  const PushDecision decision = Push(1, /*base=*/0, /*samples=*/32);
  EXPECT_EQ(decision.gradient_factor, 0.25);
  EXPECT_EQ(decision.rate_factor, 1);
  EXPECT_THAT(Values(), Each(FloatEq(-0.25)));
}

TEST_F(AsyncPushTest, MovesAveragedValuesByTheShareOfTheSlot) {
  Make(OfOne());
  SetLive(4);
  Push(1, /*base=*/0, /*samples=*/32, /*block_index=*/1);
  EXPECT_THAT(Values(1), Each(FloatEq(0.25)));
  Push(2, /*base=*/1, /*samples=*/64, /*block_index=*/1);
  EXPECT_THAT(Values(1), Each(FloatEq(0.25 + 0.5 * 0.75)));
}

TEST_F(AsyncPushTest, MovesAveragedValuesByTheShareOfTheSamples) {
  for (const SampleScale::Of of : {SampleScale::Of::kRate, SampleScale::Of::kGradient}) {
    blocks_.clear();
    Make(OfAll(of));
    SetLive(4);
    Push(1, /*base=*/0, /*samples=*/32, /*block_index=*/1);
    EXPECT_THAT(Values(1), Each(FloatEq(0.25)));
  }
}

TEST_F(AsyncPushTest, AveragedValuesNeverPassThePushedValue) {
  Make(OfOne());
  Push(1, /*base=*/0, /*samples=*/96, /*block_index=*/1);
  EXPECT_THAT(Values(1), Each(FloatEq(1)));
}

}  // namespace
}  // namespace torchps
