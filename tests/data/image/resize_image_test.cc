#include <sys/resource.h>

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/data/image/decode_image.h"

namespace torchps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<uint8_t> Resized(const DecodedImage& image, int64_t height, int64_t width) {
  std::vector<uint8_t> planes(image.channels * height * width);
  ResizeToPlanes(image, height, width, planes.data());
  return planes;
}

TEST(ResizeImageTest, TheSameSizeKeepsEveryByte) {
  const DecodedImage image{3, 1, 2, {1, 2, 3, 4, 5, 6}};
  EXPECT_THAT(Resized(image, 1, 2), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(ResizeImageTest, KeepsAConstantColour) {
  const DecodedImage image{1, 7, 5, std::vector<uint8_t>(35, 200)};
  for (const int64_t side : {1, 3, 5, 7, 20}) EXPECT_THAT(Resized(image, side, side), Each(200));
}

// When four pixels become two, the first result weights the first three pixels by 3 : 3 : 1.
TEST(ResizeImageTest, ShrinksByMeanAndGrowsByInterpolation) {
  EXPECT_THAT(Resized({1, 1, 4, {0, 100, 200, 40}}, 1, 2), ElementsAre(71, 117));
  EXPECT_THAT(Resized({1, 1, 2, {0, 100}}, 1, 4), ElementsAre(0, 25, 75, 100));
  EXPECT_THAT(Resized({1, 4, 1, {0, 100, 200, 40}}, 2, 1), ElementsAre(71, 117));
}

TEST(ResizeImageTest, ResizesBetweenAnySizes) {
  for (int64_t from = 1; from <= 9; ++from) {
    std::vector<uint8_t> pixels(from * from);
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 3);
    for (int64_t to = 1; to <= 9; ++to) {
      const std::vector<uint8_t> planes = Resized({1, from, from, pixels}, to, to);
      EXPECT_LE(planes.back(), pixels.back());
      if (from == to) {
        EXPECT_THAT(planes, ElementsAreArray(pixels));
      }
    }
  }
}

int64_t PeakBytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

// A PNG file of a few KB can have 200,000 rows. If all rows were first widened to 1000 pixels, they
// would need 800 MB.
TEST(ResizeImageTest, AHighImageNeedsLittleExtraMemory) {
  const DecodedImage image{1, 200000, 1, std::vector<uint8_t>(200000, 200)};
  const int64_t before = PeakBytes();
  EXPECT_THAT(Resized(image, 4, 1000), Each(200));
  EXPECT_LT(PeakBytes() - before, 200 << 20);
}

}  // namespace
}  // namespace torchps
