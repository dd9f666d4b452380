#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/worker/cuda/pinned_memory.h"

namespace torchps {
namespace {

ModelLayout Layout() {
  Segment weight;
  weight.name = "weight";
  weight.shape = {3, 2};
  Segment mean;
  mean.name = "mean";
  mean.shape = {2};
  mean.averaged = true;
  return *ModelLayout::Create({weight, mean});
}

TEST(GradientSegmentTest, ProvidesTheRequestedBuffers) {
  for (const int buffers : {1, 2}) {
    const auto segment = MakeGradientSegment(Layout(), buffers, /*pinned=*/false);
    ASSERT_TRUE(segment.ok()) << segment.status();
    ASSERT_EQ((*segment)->buffers(), buffers);
    for (int buffer = 0; buffer < buffers; ++buffer) {
      const absl::Span<float> memory = (*segment)->buffer(buffer);
      EXPECT_EQ(memory.size(), 8u);
      std::fill(memory.begin(), memory.end(), 1.0f);
      EXPECT_EQ((*segment)->GetBuffer(memory.subspan(0, 6)), buffer);
    }
  }
}

TEST(GradientSegmentTest, ExplainsThatPinningNeedsCuda) {
  if (FindCudaPinning().ok()) GTEST_SKIP() << "CUDA is loaded";
  const absl::Status status = MakeGradientSegment(Layout(), 1, /*pinned=*/true).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("has no cudaHostRegister"));
}

}  // namespace
}  // namespace torchps
