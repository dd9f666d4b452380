#include "torchps/common/model_layout.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

Segment Trained(std::string name, std::vector<int64_t> shape, int group = -1) {
  Segment segment;
  segment.name = std::move(name);
  segment.shape = std::move(shape);
  segment.group = group;
  return segment;
}

Segment Averaged(std::string name, std::vector<int64_t> shape) {
  Segment segment = Trained(std::move(name), std::move(shape));
  segment.averaged = true;
  return segment;
}

ModelLayout Layout(std::vector<Segment> segments) {
  const absl::StatusOr<ModelLayout> layout = ModelLayout::Create(std::move(segments));
  EXPECT_TRUE(layout.ok()) << layout.status();
  return layout.ok() ? *layout : ModelLayout();
}

void ExpectRefused(std::vector<Segment> segments, const std::string& reason) {
  const absl::Status status = ModelLayout::Create(std::move(segments)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
}

TEST(ModelLayoutTest, PutsTrainedSegmentsFirstWithoutGaps) {
  const ModelLayout layout =
      Layout({Trained("conv.weight", {16, 1, 5, 5}), Averaged("bn.mean", {16}),
              Averaged("bn.var", {16}), Trained("fc.bias", {10}, 2)});
  const std::vector<Segment>& segments = layout.segments();
  ASSERT_EQ(segments.size(), 4u);
  const std::vector<std::string> names = {"conv.weight", "fc.bias", "bn.mean", "bn.var"};
  const std::vector<int64_t> offsets = {0, 400, 410, 426};
  const std::vector<int64_t> lengths = {400, 10, 16, 16};
  for (size_t i = 0; i < segments.size(); ++i) {
    EXPECT_EQ(segments[i].name, names[i]);
    EXPECT_EQ(segments[i].offset, offsets[i]);
    EXPECT_EQ(segments[i].length, lengths[i]);
  }
  EXPECT_EQ(layout.trained_size(), 410);
  EXPECT_EQ(layout.averaged_size(), 32);
  EXPECT_EQ(layout.size(), 442);
}

TEST(ModelLayoutTest, AScalarHasOneElementAndAnEmptyTensorNone) {
  const ModelLayout layout = Layout({Trained("empty", {3, 0}), Trained("scalar", {})});
  EXPECT_EQ(layout.segments()[0].length, 0);
  EXPECT_EQ(layout.segments()[1].length, 1);
  EXPECT_EQ(layout.size(), 1);
}

TEST(ModelLayoutTest, RejectsInvalidSegmentsByName) {
  ExpectRefused({}, "no trained parameter");
  ExpectRefused({Averaged("mean", {4})}, "no trained parameter");
  ExpectRefused({Trained("w", {0})}, "no trained parameter");
  ExpectRefused({Trained("", {4})}, "a segment has no name");
  ExpectRefused({Trained("w", {4}), Averaged("w", {4})}, "segment 'w' appears twice");
  ExpectRefused({Trained("w", {4, -1})}, "segment 'w' [4, -1] has a negative dimension");
}

TEST(ModelLayoutTest, RefusesTooManyElements) {
  const int64_t limit = int64_t{1} << 40;
  EXPECT_EQ(Layout({Trained("w", {limit})}).size(), limit);
  ExpectRefused({Trained("w", {limit + 1})}, "more than 2^40 elements");
  ExpectRefused({Trained("w", {int64_t{1} << 62, 4})}, "more than 2^40 elements");
  ExpectRefused({Trained("a", {limit}), Trained("b", {1})}, "more than 2^40 elements");
}

// The constant comes from a second implementation. Programs of different builds must agree on it.
TEST(ModelLayoutTest, HasTheSameFingerprintEverywhere) {
  const ModelLayout layout = Layout(
      {Trained("fc.weight", {10, 784}), Averaged("bn.mean", {4}), Trained("fc.bias", {10}, 0)});
  EXPECT_EQ(layout.fingerprint(), 0xa728dcbe2ca66cacu);
}

TEST(ModelLayoutTest, AnyDifferenceChangesTheFingerprint) {
  const uint64_t fingerprint = Layout({Trained("a", {2, 3}), Trained("b", {4})}).fingerprint();
  EXPECT_NE(Layout({Trained("b", {4}), Trained("a", {2, 3})}).fingerprint(), fingerprint);
  EXPECT_NE(Layout({Trained("a", {3, 2}), Trained("b", {4})}).fingerprint(), fingerprint);
  EXPECT_NE(Layout({Trained("a", {6}), Trained("b", {4})}).fingerprint(), fingerprint);
  EXPECT_NE(Layout({Trained("a", {2, 3}), Trained("c", {4})}).fingerprint(), fingerprint);
  EXPECT_NE(Layout({Trained("a", {2, 3}), Trained("b", {4}, 0)}).fingerprint(), fingerprint);
  EXPECT_NE(Layout({Trained("a", {2, 3}), Averaged("b", {4})}).fingerprint(), fingerprint);
  EXPECT_NE(Layout({Trained("a", {2, 3})}).fingerprint(), fingerprint);
}

TEST(ModelLayoutTest, NamesTheFirstSegmentThatDiffers) {
  const ModelLayout mine = Layout({Trained("a", {2}), Trained("b", {4}), Averaged("m", {1})});
  EXPECT_TRUE(mine.CheckSame(mine, "the job", "this worker").ok());
  EXPECT_EQ(mine.CheckSame(Layout({Trained("a", {2}), Trained("b", {5}, 1), Averaged("m", {1})}),
                           "the job", "this worker"),
            absl::FailedPreconditionError("the models differ first at segment 1: the job has 'b' "
                                          "[4], this worker has 'b' [5], group 1"));
  EXPECT_EQ(mine.CheckSame(Layout({Trained("a", {2}), Trained("b", {4}), Trained("m", {1})}),
                           "the job", "this worker"),
            absl::FailedPreconditionError("the models differ first at segment 2: the job has 'm' "
                                          "[1], averaged, this worker has 'm' [1]"));
  EXPECT_EQ(mine.CheckSame(Layout({Trained("a", {2}), Trained("b", {4})}), "the job", "mine"),
            absl::FailedPreconditionError("the models differ in length: the job has 3 segments, "
                                          "mine has 2"));
}

}  // namespace
}  // namespace torchps
