#include "torchps/server/store/block_updater.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/hash.h"
#include "torchps/job/job_spec.h"

namespace torchps {
namespace {

// Plain SGD with rate 1. The group "b*" uses a tenth of the rate, "c" another weight decay.
OptimizerSpec GroupedSgd() {
  OptimizerSpec spec;
  spec.mutable_sgd();
  spec.set_learning_rate(1.0);
  ParameterGroupSpec* const slow = spec.add_group();
  slow->set_pattern("b*");
  slow->set_learning_rate_factor(0.1);
  ParameterGroupSpec* const decaying = spec.add_group();
  decaying->set_pattern("c");
  decaying->set_learning_rate_factor(1.0);
  decaying->set_weight_decay(0.5);
  return spec;
}

struct Fixture {
  ModelLayout layout;
  BlockMap map;
  std::unique_ptr<BlockUpdater> updater;
};

Fixture MakeFixture(int64_t block_elements) {
  std::vector<Segment> segments(4);
  segments[0].name = "a";
  segments[0].shape = {3};
  segments[1].name = "bias";
  segments[1].shape = {4};
  segments[1].group = 0;
  segments[2].name = "c";
  segments[2].shape = {2, 1};
  segments[2].group = 1;
  segments[3].name = "mean";
  segments[3].shape = {3};
  segments[3].averaged = true;
  Fixture fixture;
  fixture.layout = *ModelLayout::Create(segments);
  fixture.map = *BlockMap::Create(fixture.layout, block_elements * 4, 1);
  fixture.updater = *BlockUpdater::Create(GroupedSgd(), fixture.layout, fixture.map);
  return fixture;
}

void SetAll(Block* block, float value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) {
  const BlockChange change(block);
  std::fill(block->values.begin(), block->values.end(), value);
}

// Returns the elements after one gradient of ones on values of two.
std::vector<float> OneStep(int64_t block_elements, bool through_payload) {
  const Fixture fixture = MakeFixture(block_elements);
  std::vector<float> result;
  for (const BlockRange& range : fixture.map.blocks()) {
    Block block(range);
    MutexLock lock(&block.mutex);
    fixture.updater->Allocate(&block);
    SetAll(&block, 2.0f);
    const std::vector<float> ones(range.length, 1.0f);
    if (through_payload) {
      fixture.updater->Apply(&block, MakePayload(ones), {1.0, 0.5});
    } else {
      fixture.updater->Apply(&block, absl::MakeConstSpan(ones), {1.0, 0.5});
    }
    EXPECT_EQ(block.version, 1);
    result.insert(result.end(), block.values.begin(), block.values.end());
  }
  return result;
}

TEST(BlockUpdaterTest, AppliesGroupsAcrossBlockBoundaries) {
  const std::vector<float> expected = {1, 1, 1, 1.9f, 1.9f, 1.9f, 1.9f, 0, 0, 1.5f, 1.5f, 1.5f};
  for (int64_t block_elements = 1; block_elements <= 12; ++block_elements) {
    for (const bool through_payload : {false, true}) {
      const std::vector<float> values = OneStep(block_elements, through_payload);
      ASSERT_EQ(values.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_FLOAT_EQ(values[i], expected[i])
            << "element " << i << ", blocks of " << block_elements;
      }
    }
  }
}

TEST(BlockUpdaterTest, TheRateFactorScalesTheStepAndTheAveragedShare) {
  const Fixture fixture = MakeFixture(12);
  for (const BlockRange& range : fixture.map.blocks()) {
    Block block(range);
    MutexLock lock(&block.mutex);
    fixture.updater->Allocate(&block);
    SetAll(&block, 0.0f);
    const std::vector<float> ones(range.length, 1.0f);
    fixture.updater->Apply(&block, absl::MakeConstSpan(ones), {0.25, 0.5});
    EXPECT_FLOAT_EQ(block.values[0], range.averaged ? 0.125f : -0.25f);
  }
}

// Compares each element with a block of this element only, which gets no push when the element is
// absent.
TEST(BlockUpdaterTest, SkipsAbsentElementsAndTheirSteps) {
  Segment segment;
  segment.name = "w";
  segment.shape = {6};
  const ModelLayout layout = *ModelLayout::Create({segment});
  const BlockMap whole = *BlockMap::Create(layout, 6 * 4, 1);
  const BlockMap single = *BlockMap::Create(layout, 4, 1);
  OptimizerSpec spec;
  spec.mutable_adam()->set_beta1(0.9);
  spec.mutable_adam()->set_beta2(0.99);
  spec.mutable_adam()->set_epsilon(1e-8);
  spec.set_learning_rate(0.1);
  spec.set_weight_decay(0.1);
  const auto updater = *BlockUpdater::Create(spec, layout, whole);
  const auto single_updater = *BlockUpdater::Create(spec, layout, single);

  Block block(whole.blocks()[0]);
  MutexLock lock(&block.mutex);
  updater->Allocate(&block);
  SetAll(&block, 1.0f);
  std::vector<std::unique_ptr<Block>> alone;
  for (const BlockRange& range : single.blocks()) {
    alone.push_back(std::make_unique<Block>(range));
    MutexLock single_lock(&alone.back()->mutex);
    single_updater->Allocate(alone.back().get());
    SetAll(alone.back().get(), 1.0f);
  }
  uint64_t random = 9;
  for (int step = 1; step <= 20; ++step) {
    ElementRuns absent;
    std::vector<float> gradient(6);
    for (int64_t i = 0; i < 6; ++i) {
      gradient[i] = static_cast<float>(UnitDouble(SplitMix64(random))) - 0.5f;
      if (step % 5 == 0 || UniformBelow(random, 3) == 0) {
        AppendRun(i, i + 1, &absent);
        continue;
      }
      MutexLock single_lock(&alone[i]->mutex);
      single_updater->Apply(alone[i].get(), absl::MakeConstSpan(gradient).subspan(i, 1),
                            {1.0, 1.0});
    }
    if (CoversAll(absent, 6)) {
      updater->Apply(&block, FramePayload(), {1.0, 1.0}, absent);
    } else {
      updater->Apply(&block, MakePayload(gradient), {1.0, 1.0}, absent);
    }
    EXPECT_EQ(block.version, step);
    for (int64_t i = 0; i < 6; ++i) {
      MutexLock single_lock(&alone[i]->mutex);
      ASSERT_EQ(block.values[i], alone[i]->values[0]) << "element " << i << ", step " << step;
      ASSERT_EQ(block.slots[0][i], alone[i]->slots[0][0]);
      ASSERT_EQ(block.slots[1][i], alone[i]->slots[1][0]);
    }
  }
  EXPECT_FALSE(block.missed.empty());
}

// The gradient is finite, but its square is not, so the second moment becomes infinite. The value
// stays finite and never changes again.
TEST(BlockUpdaterTest, DetectsANonfiniteOptimizerArray) {
  Segment segment;
  segment.name = "w";
  segment.shape = {32};
  const ModelLayout layout = *ModelLayout::Create({segment});
  const BlockMap map = *BlockMap::Create(layout, 16 * sizeof(float), 1);
  JobSpec wish;
  wish.set_workers(1);
  wish.mutable_optimizer()->mutable_adam();
  wish.mutable_optimizer()->set_learning_rate(0.1);
  const JobSpec job = *NormalizeJobSpec(wish);
  const auto updater = *BlockUpdater::Create(job.optimizer(), layout, map);
  for (const BlockRange& range : map.blocks()) {
    Block block(range);
    MutexLock lock(&block.mutex);
    updater->Allocate(&block);
    SetAll(&block, 2.0f);
    std::vector<float> gradient(range.length, 1.0f);
    const auto apply = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      updater->Apply(&block, absl::MakeConstSpan(gradient), GradientTerms());
    };
    for (int i = 0; i < 100; ++i) apply();
    EXPECT_TRUE(block.finite);
    gradient[range.length - 1] = 1e22f;
    apply();
    gradient[range.length - 1] = 1.0f;
    const float frozen = block.values.back();
    for (int i = 0; i < 64; ++i) apply();
    EXPECT_EQ(block.values.back(), frozen);
    EXPECT_FALSE(block.finite);
  }
}

TEST(BlockUpdaterTest, AveragedBlocksKeepNoOptimizerSlots) {
  const Fixture fixture = MakeFixture(12);
  OptimizerSpec adam = GroupedSgd();
  adam.mutable_adam()->set_beta1(0.9);
  adam.mutable_adam()->set_beta2(0.999);
  adam.mutable_adam()->set_epsilon(1e-8);
  const auto updater = BlockUpdater::Create(adam, fixture.layout, fixture.map);
  ASSERT_TRUE(updater.ok()) << updater.status();
  for (const BlockRange& range : fixture.map.blocks()) {
    Block block(range);
    MutexLock lock(&block.mutex);
    (*updater)->Allocate(&block);
    EXPECT_EQ(block.slots.size(), range.averaged ? 0u : 2u);
  }
}

}  // namespace
}  // namespace torchps
