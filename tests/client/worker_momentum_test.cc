#include "torchps/client/worker_momentum.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

// Three trained parameters in two groups, and one averaged segment. Blocks of 16 elements cross the
// boundaries of the parameters.
ModelLayout Layout() {
  std::vector<Segment> segments(4);
  const int64_t lengths[] = {21, 7, 30, 5};
  for (size_t i = 0; i < segments.size(); ++i) {
    segments[i].name = std::string(1, static_cast<char>('a' + i));
    segments[i].shape = {lengths[i]};
    segments[i].group = i == 1 ? 0 : -1;
    segments[i].averaged = i == 3;
  }
  return *ModelLayout::Create(segments);
}

OptimizerSpec Spec(const std::string& at = "WORKER") {
  OptimizerSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "sgd { momentum: 0.9 momentum_at: " + at +
          " } weight_decay: 0.25 group { pattern: 'b' weight_decay: 0 }",
      &spec));
  return spec;
}

class WorkerMomentumTest : public ::testing::Test {
 protected:
  std::vector<float> Random(int64_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(UnitDouble(SplitMix64(state_))) - 0.5f;
    return values;
  }

  const ModelLayout layout_ = Layout();
  const BlockMap map_ = *BlockMap::Create(layout_, 64, 1);
  uint64_t state_ = 1;
};

TEST_F(WorkerMomentumTest, ExistsOnlyIfTheJobConfiguresIt) {
  EXPECT_EQ(WorkerMomentum::Create(Spec("SERVER"), layout_, map_), nullptr);
  EXPECT_EQ(WorkerMomentum::Create(Spec("DELAYED"), layout_, map_), nullptr);
  OptimizerSpec adam;
  adam.mutable_adam();
  EXPECT_EQ(WorkerMomentum::Create(adam, layout_, map_), nullptr);
  EXPECT_NE(WorkerMomentum::Create(Spec(), layout_, map_), nullptr);
}

TEST_F(WorkerMomentumTest, FollowsTheFormulaInEveryGroup) {
  const auto momentum = WorkerMomentum::Create(Spec(), layout_, map_);
  const int64_t size = layout_.trained_size();
  std::vector<double> expected(size);
  for (int step = 0; step < 50; ++step) {
    const std::vector<float> values = Random(size);
    const std::vector<float> gradient = Random(size);
    std::vector<bool> is_absent(size);
    for (int64_t i = 0; i < size; ++i) is_absent[i] = step % 2 == 1 && (i / 5) % 3 == 0;
    std::vector<float> pushed = gradient;
    for (const BlockRange& block : map_.blocks()) {
      if (block.averaged) continue;
      ElementRuns absent;
      for (int64_t i = 0; i < block.length; ++i) {
        if (is_absent[block.offset + i]) AppendRun(i, i + 1, &absent);
      }
      ASSERT_TRUE(momentum->Apply(block.id, values, absent,
                                  absl::MakeSpan(pushed).subspan(block.offset, block.length)));
    }
    for (int64_t i = 0; i < size; ++i) {
      if (is_absent[i]) {
        ASSERT_EQ(pushed[i], gradient[i]) << i;
        continue;
      }
      const double decay = i >= 21 && i < 28 ? 0 : 0.25;
      const double g = gradient[i] + decay * values[i];
      expected[i] = 0.9 * expected[i] + g;
      ASSERT_NEAR(pushed[i], g + 0.9 * expected[i], 1e-5) << "element " << i << " step " << step;
      ASSERT_NEAR(momentum->momentum()[i], expected[i], 1e-5) << i;
    }
  }
}

TEST_F(WorkerMomentumTest, AnOverflowResetsTheMomentumToZero) {
  const auto momentum = WorkerMomentum::Create(Spec(), layout_, map_);
  const std::vector<float> values(layout_.trained_size());
  std::vector<float> gradient(16, std::numeric_limits<float>::max());
  EXPECT_FALSE(momentum->Apply(0, values, {}, absl::MakeSpan(gradient)));
  gradient.assign(16, 1.0f);
  ASSERT_TRUE(momentum->Apply(0, values, {}, absl::MakeSpan(gradient)));
  for (const float pushed : gradient) EXPECT_FLOAT_EQ(pushed, 1.9f);
}

TEST_F(WorkerMomentumTest, DecaysToZeroWithoutDenormals) {
  const auto momentum = WorkerMomentum::Create(Spec(), layout_, map_);
  const std::vector<float> values(layout_.trained_size());
  std::vector<float> gradient(16, 1.0f);
  for (int step = 0; step < 1000; ++step) {
    ASSERT_TRUE(momentum->Apply(0, values, {}, absl::MakeSpan(gradient)));
    gradient.assign(16, 0.0f);
    const float v = momentum->momentum()[0];
    ASSERT_TRUE(v == 0 || std::isnormal(v)) << v;
  }
  EXPECT_EQ(momentum->momentum()[0], 0);
}

}  // namespace
}  // namespace torchps
