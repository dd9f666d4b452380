#include "torchps/client/error_feedback.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/encoding_name.h"
#include "torchps/common/hash.h"
#include "torchps/transport/encoding.h"

namespace torchps {
namespace {

using ::testing::ElementsAreArray;

constexpr int64_t kTrained = 2600;  // blocks of 1100, 1100 and 400
constexpr int64_t kBlockElements = 1100;

BlockMap Map() {
  std::vector<Segment> segments(2);
  segments[0].name = "w";
  segments[0].shape = {kTrained};
  segments[1].name = "mean";
  segments[1].shape = {5};
  segments[1].averaged = true;
  return *BlockMap::Create(*ModelLayout::Create(segments), kBlockElements * 4, 1);
}

EncodingSpec Spec(EncodingSpec::Kind kind) {
  EncodingSpec spec;
  spec.set_kind(kind);
  spec.set_fraction(0.1);
  return spec;
}

std::vector<float> Random(int64_t count, uint64_t& state) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(UnitDouble(SplitMix64(state))) - 0.5f;
  return values;
}

class ErrorFeedbackTest : public ::testing::TestWithParam<EncodingSpec::Kind> {
 protected:
  std::vector<float> Decoded(absl::Span<const uint8_t> bytes, int64_t elements) {
    std::vector<float> decoded(elements);
    Decode(GetParam(), bytes, absl::MakeSpan(decoded));
    return decoded;
  }

  const BlockMap map_ = Map();
  ErrorFeedback feedback_{map_, Spec(GetParam())};
};

TEST_P(ErrorFeedbackTest, KeepsTheEncodingErrorAsResidual) {
  uint64_t state = 1;
  const std::vector<float> gradient = Random(kBlockElements, state);
  std::vector<uint8_t> expected(EncodedBytes(GetParam(), kBlockElements, 0.1));
  Encode(GetParam(), gradient, 0.1, expected.data());
  const absl::Span<const uint8_t> sent = feedback_.Encode(1, 1, gradient);
  EXPECT_THAT(sent, ElementsAreArray(expected));
  const std::vector<float> decoded = Decoded(sent, kBlockElements);
  for (int64_t i = 0; i < kBlockElements; ++i) {
    ASSERT_EQ(feedback_.residual()[kBlockElements + i], gradient[i] - decoded[i]);
    ASSERT_EQ(feedback_.residual()[i], 0.0f) << "another block's residual";
  }
}

TEST_P(ErrorFeedbackTest, ARetrySendsTheSameBytes) {
  uint64_t state = 2;
  const std::vector<float> gradient = Random(kBlockElements, state);
  feedback_.Encode(0, 1, Random(kBlockElements, state));
  const absl::Span<const uint8_t> first = feedback_.Encode(0, 2, gradient);
  const std::vector<uint8_t> bytes(first.begin(), first.end());
  const std::vector<float> residual(feedback_.residual().begin(), feedback_.residual().end());
  EXPECT_THAT(feedback_.Encode(0, 2, gradient), ElementsAreArray(bytes));
  EXPECT_THAT(feedback_.residual(), ElementsAreArray(residual));
}

TEST_P(ErrorFeedbackTest, ARejectedGradientReturnsToTheResidualOnce) {
  uint64_t state = 3;
  const std::vector<float> gradient = Random(400, state);
  feedback_.Encode(2, 5, gradient);
  for (int repeat = 0; repeat < 3; ++repeat) {
    feedback_.TakeBack(2, 5);
    EXPECT_THAT(feedback_.residual().subspan(2200), ElementsAreArray(gradient));
  }
}

TEST_P(ErrorFeedbackTest, AbsentElementsKeepTheirResidual) {
  uint64_t state = 6;
  feedback_.Encode(2, 1, Random(400, state));
  const std::vector<float> before(feedback_.residual().begin(), feedback_.residual().end());
  std::vector<float> gradient = Random(400, state);
  const ElementRuns absent = {{0, 10}, {100, 300}};
  for (const ElementRun& run : absent) {
    std::fill(gradient.begin() + run.begin, gradient.begin() + run.end, 0.0f);
  }
  const std::vector<float> sent = Decoded(feedback_.Encode(2, 2, gradient, absent), 400);
  for (const ElementRun& run : absent) {
    for (int64_t i = run.begin; i < run.end; ++i) {
      ASSERT_EQ(sent[i], 0.0f);
      ASSERT_EQ(feedback_.residual()[2200 + i], before[2200 + i]);
    }
  }
  for (int64_t i = 300; i < 400; ++i) {
    ASSERT_NEAR(feedback_.residual()[2200 + i], before[2200 + i] + gradient[i] - sent[i], 1e-6);
  }
  // The push is refused: the elements that it sent return to the residual, and absent elements keep
  // theirs.
  feedback_.TakeBack(2, 2);
  ASSERT_EQ(feedback_.residual()[2200 + 150], before[2200 + 150]);
  ASSERT_NEAR(feedback_.residual()[2200 + 350], before[2200 + 350] + gradient[350], 1e-6);
}

TEST_P(ErrorFeedbackTest, IgnoresAnswersToOtherSteps) {
  uint64_t state = 4;
  feedback_.Encode(2, 5, Random(400, state));
  const std::vector<float> residual(feedback_.residual().begin(), feedback_.residual().end());
  feedback_.TakeBack(2, 4);
  feedback_.TakeBack(2, 6);
  feedback_.TakeBack(3, 5);
  EXPECT_THAT(feedback_.residual(), ElementsAreArray(residual));
}

// For each element, applied values plus residual equal the sum of the gradients.
TEST_P(ErrorFeedbackTest, RetriesAndRejectionsLoseNothing) {
  uint64_t state = 20241120;
  SCOPED_TRACE(testing::Message() << "seed " << state);
  std::vector<double> gradients(kTrained);
  std::vector<double> applied(kTrained);
  for (Step step = 1; step <= 60; ++step) {
    for (const BlockRange& block : map_.blocks()) {
      // Some blocks are withheld, so they are not encoded.
      if (block.averaged || UniformBelow(state, 10) == 0) continue;
      const std::vector<float> gradient = Random(block.length, state);
      for (int64_t i = 0; i < block.length; ++i) gradients[block.offset + i] += gradient[i];
      absl::Span<const uint8_t> bytes;
      for (uint64_t tries = 1 + UniformBelow(state, 3); tries > 0; --tries) {
        bytes = feedback_.Encode(block.id, step, gradient);
      }
      if (UniformBelow(state, 4) == 0) {
        feedback_.TakeBack(block.id, step);
        continue;
      }
      const std::vector<float> decoded = Decoded(bytes, block.length);
      for (int64_t i = 0; i < block.length; ++i) applied[block.offset + i] += decoded[i];
    }
  }
  for (int64_t i = 0; i < kTrained; ++i) {
    ASSERT_NEAR(applied[i] + feedback_.residual()[i], gradients[i], 1e-5) << "element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Lossy, ErrorFeedbackTest,
                         ::testing::Values(EncodingSpec::BFLOAT16, EncodingSpec::INT8,
                                           EncodingSpec::TOP_K),
                         EncodingName);

TEST(ErrorFeedbackOverTimeTest, SmallGradientsAreSentEventually) {
  // In INT8 the scale follows the largest value, so 0.01 rounds to 0 next to 127. The residual
  // grows until the value is sent within the 60 steps.
  ErrorFeedback feedback(Map(), Spec(EncodingSpec::INT8));
  std::vector<float> gradient(kBlockElements, 0.01f);
  gradient[0] = 127.0f;
  float sum = 0;
  for (Step step = 1; step <= 60; ++step) {
    std::vector<float> decoded(kBlockElements);
    Decode(EncodingSpec::INT8, feedback.Encode(0, step, gradient), absl::MakeSpan(decoded));
    sum += decoded[1];
  }
  EXPECT_FLOAT_EQ(sum, 1.0f);
}

}  // namespace
}  // namespace torchps
