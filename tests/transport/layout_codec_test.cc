#include "torchps/transport/layout_codec.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

ModelLayoutProto FromText(const std::string& text) {
  ModelLayoutProto proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto));
  return proto;
}

void ExpectRefused(const std::string& text, const std::string& reason) {
  const absl::StatusOr<ModelLayout> layout = DecodeLayout(FromText(text));
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(layout.status().message()), HasSubstr(reason));
}

TEST(LayoutCodecTest, RoundTripsALayout) {
  Segment weight;
  weight.name = "conv.weight";
  weight.shape = {16, 3, 5, 5};
  weight.group = 1;
  Segment mean;
  mean.name = "bn.running_mean";
  mean.shape = {16};
  mean.averaged = true;
  Segment scalar;
  scalar.name = "temperature";
  const absl::StatusOr<ModelLayout> layout = ModelLayout::Create({weight, mean, scalar});
  ASSERT_TRUE(layout.ok()) << layout.status();

  const absl::StatusOr<ModelLayout> back = DecodeLayout(EncodeLayout(*layout));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->fingerprint(), layout->fingerprint());
  EXPECT_EQ(back->trained_size(), 1201);
  EXPECT_EQ(back->averaged_size(), 16);
  EXPECT_EQ(back->segments()[2].name, "bn.running_mean");
  EXPECT_EQ(back->segments()[2].offset, 1201);
}

TEST(LayoutCodecTest, WritesTheSegmentsInOrder) {
  Segment bias;
  bias.name = "bias";
  bias.shape = {2, 3};
  const absl::StatusOr<ModelLayout> layout = ModelLayout::Create({bias});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(EncodeLayout(*layout).ShortDebugString(),
            "segment { name: \"bias\" shape: 2 shape: 3 group: -1 }");
}

TEST(LayoutCodecTest, RejectsAnInvalidSegmentByName) {
  ExpectRefused("", "no trained parameter");
  ExpectRefused("segment { shape: 2 }", "no name");
  ExpectRefused("segment { name: 'w' shape: 2 } segment { name: 'w' shape: 2 }", "'w'");
  ExpectRefused("segment { name: 'w' shape: -2 }", "'w' [-2]");
  ExpectRefused("segment { name: 'w' shape: 9223372036854775807 shape: 4 }", "'w'");
  ExpectRefused("segment { name: 'w' shape: 2 group: -2 }", "'w' has group -2");
}

}  // namespace
}  // namespace torchps
