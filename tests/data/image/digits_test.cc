#include "torchps/data/image/digits.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

uint64_t Checksum(const std::vector<uint8_t>& bytes) {
  Fnv1a hash;
  hash.AddString({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return hash.value();
}

TEST(DigitsTest, TheImagesHaveTheSameBytesOnEveryMachine) {
  EXPECT_EQ(Checksum(GenerateDigits(200, 1, DigitsPart::kTrain).pixels), 0x329bd6dffdecc184u);
  EXPECT_EQ(Checksum(GenerateDigits(200, 1, DigitsPart::kTest).pixels), 0x26806d24a91fa11u);
  EXPECT_EQ(Checksum(GenerateDigits(200, 2, DigitsPart::kTrain).pixels), 0xc6a45d4f3e8e7ab2u);
}

TEST(DigitsTest, AnImageDoesNotDependOnTheNumberOfImages) {
  const ImageSet few = GenerateDigits(15, 3, DigitsPart::kTrain);
  ImageSet many = GenerateDigits(40, 3, DigitsPart::kTrain);
  many.Limit(15);
  EXPECT_EQ(few.pixels, many.pixels);
  EXPECT_EQ(few.labels, many.labels);
}

TEST(DigitsTest, DigitsAreEquallyFrequent) {
  const ImageSet digits = GenerateDigits(1003, 1, DigitsPart::kTrain);
  EXPECT_EQ(digits.size(), 1003);
  EXPECT_EQ(digits.pixels.size(), 1003u * 28 * 28);
  for (int digit = 0; digit < 10; ++digit) {
    EXPECT_EQ(std::count(digits.labels.begin(), digits.labels.end(), digit), digit < 3 ? 101 : 100);
  }
}

TEST(DigitsTest, NoImageRepeatsAcrossPartsAndSeeds) {
  std::vector<std::vector<uint8_t>> images;
  for (uint64_t seed : {1, 2}) {
    for (DigitsPart part : {DigitsPart::kTrain, DigitsPart::kTest}) {
      const ImageSet digits = GenerateDigits(500, seed, part);
      for (auto at = digits.pixels.begin(); at != digits.pixels.end(); at += 784) {
        images.emplace_back(at, at + 784);
      }
    }
  }
  std::sort(images.begin(), images.end());
  EXPECT_EQ(std::adjacent_find(images.begin(), images.end()), images.end());
}

TEST(DigitsTest, ImagesAreMostlyDark) {
  const ImageSet digits = GenerateDigits(1000, 5, DigitsPart::kTest);
  for (int64_t i = 0; i < digits.size(); ++i) {
    const auto begin = digits.pixels.begin() + i * 784;
    const int64_t bright = std::count_if(begin, begin + 784, [](uint8_t p) { return p > 90; });
    EXPECT_GE(bright, 15) << i;
    EXPECT_LE(bright, 400) << i;
  }
}

}  // namespace
}  // namespace torchps
