#include "server/store/async_push.h"

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

// A block of two elements under plain SGD with rate 1, so that a gradient of 1 takes 1 away.
class AsyncPushTest : public ::testing::Test {
 protected:
  void Make(int64_t whole_step) {
    Segment segment;
    segment.name = "weight";
    segment.shape = {2};
    layout_ = *ModelLayout::Create({segment});
    map_ = *BlockMap::Create(layout_, 2 * sizeof(float), /*servers=*/1);
    OptimizerSpec spec;
    spec.mutable_sgd();
    spec.set_learning_rate(1.0);
    updater_ = *BlockUpdater::Create(spec, layout_, map_);
    LagContract contract;
    contract.set_policy(LagContract::SCALE);
    contract.set_free_lag(1);
    async_ =
        std::make_unique<AsyncPush>(contract, whole_step, /*progress_slack=*/0, updater_.get());
    block_ = std::make_unique<Block>(map_.blocks()[0]);
    MutexLock lock(&block_->mutex);
    updater_->Allocate(block_.get());
    const BlockChange change(block_.get());
    std::fill(block_->values.begin(), block_->values.end(), 0.0f);
  }

  PushDecision Push(Step step, Version base, uint32_t samples) {
    PushHeader header;
    header.incarnation = 1;
    header.step = step;
    header.base_version = base;
    header.weight = samples;
    MutexLock lock(&block_->mutex);
    const absl::StatusOr<PushDecision> decision =
        async_->Push(block_.get(), header, MakePayload({1.0f, 1.0f}));
    EXPECT_TRUE(decision.ok()) << decision.status();
    return decision.value_or(PushDecision{});
  }

  std::vector<float> Values() {
    MutexLock lock(&block_->mutex);
    return {block_->values.begin(), block_->values.end()};
  }

  ModelLayout layout_;
  BlockMap map_;
  std::unique_ptr<BlockUpdater> updater_;
  std::unique_ptr<AsyncPush> async_;
  std::unique_ptr<Block> block_;
};

TEST_F(AsyncPushTest, WhereBatchesAreEqualThePartBatchOfAnEpochsEndHasTheWholeRate) {
  Make(/*whole_step=*/0);
  Push(1, /*base=*/0, /*samples=*/8);
  EXPECT_THAT(Values(), Each(FloatEq(-1)));
}

TEST_F(AsyncPushTest, WhereBatchesDifferTheRateGoesByTheirSamples) {
  Make(/*whole_step=*/32);
  EXPECT_EQ(Push(1, /*base=*/0, /*samples=*/8).verdict, ACCEPTED);
  EXPECT_THAT(Values(), Each(FloatEq(-0.25)));
  Push(2, /*base=*/1, /*samples=*/48);
  EXPECT_THAT(Values(), Each(FloatEq(-0.25 - 1.5)));
}

TEST_F(AsyncPushTest, SamplesAndLagScaleTheRateTogether) {
  Make(/*whole_step=*/32);
  for (Step step = 1; step <= 4; ++step) Push(step, /*base=*/step - 1, /*samples=*/32);
  EXPECT_EQ(Push(5, /*base=*/0, /*samples=*/16).verdict, SCALED);
  EXPECT_THAT(Values(), Each(FloatEq(-4 - 0.5 / 4)));
}

}  // namespace
}  // namespace torchps
