#include "data/image/decode_image.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/image/encode_images.h"

namespace torchps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr ImageSize kColours{3, 1, 1};

// JPEG loses a little.
MATCHER_P(Near, value, "") { return std::abs(static_cast<int>(arg) - value) <= 3; }

ImageSize Whole(int64_t channels) { return {channels, 1 << 16, 1 << 16}; }

TEST(DecodeImageTest, APngIsDecodedToTheByte) {
  const std::vector<uint8_t> pixels = {255, 0, 0, 0, 255, 0, 0, 0, 255, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto image = DecodeImage(EncodePng(pixels, 2, 3, 3), Whole(3), "x.png");
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->height, 2);
  EXPECT_EQ(image->width, 3);
  EXPECT_EQ(image->channels, 3);
  EXPECT_THAT(image->pixels, ElementsAreArray(pixels));
}

TEST(DecodeImageTest, GreyBecomesColoursAndColoursGrey) {
  const auto colours = DecodeImage(EncodePng({7, 200}, 1, 2, 1), Whole(3), "x.png");
  ASSERT_TRUE(colours.ok()) << colours.status();
  EXPECT_THAT(colours->pixels, ElementsAre(7, 7, 7, 200, 200, 200));
  const auto grey = DecodeImage(EncodePng({90, 90, 90}, 1, 1, 3), Whole(1), "x.png");
  ASSERT_TRUE(grey.ok()) << grey.status();
  EXPECT_THAT(grey->pixels, ElementsAre(Near(90)));
  const std::string jpeg = EncodeJpeg(Flat(8, 8, {120}), 8, 8, 1);
  EXPECT_THAT(DecodeImage(jpeg, Whole(3), "x.jpg")->pixels, Each(Near(120)));
  EXPECT_EQ(DecodeImage(jpeg, Whole(3), "x.jpg")->pixels.size(), 192u);
  EXPECT_EQ(DecodeImage(jpeg, Whole(1), "x.jpg")->pixels.size(), 64u);
}

TEST(DecodeImageTest, WhatIsTransparentLiesOnBlack) {
  const auto image =
      DecodeImage(EncodePng({9, 8, 7, 255, 250, 250, 250, 0}, 1, 2, 4), Whole(3), "x");
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_THAT(image->pixels, ElementsAre(9, 8, 7, 0, 0, 0));
}

TEST(DecodeImageTest, AJpegIsDecodedPlainOrProgressive) {
  for (const bool progressive : {false, true}) {
    const auto image =
        DecodeImage(EncodeJpeg(Flat(20, 31, {200, 30, 60}), 20, 31, 3, progressive), Whole(3), "x");
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->height, 20);
    EXPECT_EQ(image->width, 31);
    EXPECT_THAT(image->pixels[0], Near(200));
    EXPECT_THAT(image->pixels[1], Near(30));
    EXPECT_THAT(image->pixels[2], Near(60));
  }
}

TEST(DecodeImageTest, ALargeJpegIsDecodedSmallerButNeverBelowWhatIsWanted) {
  const std::string jpeg = EncodeJpeg(Flat(80, 160, {10, 20, 30}), 80, 160, 3);
  EXPECT_EQ(DecodeImage(jpeg, {3, 80, 160}, "x")->height, 80);
  EXPECT_EQ(DecodeImage(jpeg, {3, 41, 10}, "x")->height, 80);
  EXPECT_EQ(DecodeImage(jpeg, {3, 40, 80}, "x")->height, 40);
  EXPECT_EQ(DecodeImage(jpeg, {3, 10, 81}, "x")->height, 80);
  EXPECT_EQ(DecodeImage(jpeg, {3, 1, 1}, "x")->height, 10);
}

void ExpectError(const std::string& bytes, absl::StatusCode code, const std::string& part) {
  const absl::Status status = DecodeImage(bytes, kColours, "broken.jpg").status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("broken.jpg: expected "));
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

TEST(DecodeImageTest, WhatIsNoImageIsNamed) {
  ExpectError("", absl::StatusCode::kInvalidArgument, "got an empty file");
  ExpectError("GIF89a...", absl::StatusCode::kInvalidArgument, "got something else");
  ExpectError("\xff\xd8\xff", absl::StatusCode::kDataLoss, "JPEG");
  ExpectError("\x89PNG\r\n\x1a\n", absl::StatusCode::kDataLoss, "PNG");
}

TEST(DecodeImageTest, ColoursForPrintAreRefused) {
  ExpectError(EncodeJpeg(Flat(8, 8, {1, 2, 3, 4}), 8, 8, 4), absl::StatusCode::kInvalidArgument,
              "CMYK");
}

TEST(DecodeImageTest, AnImageThatClaimsToBeHugeIsRefusedBeforeItTakesMemory) {
  std::string png = EncodePng({1}, 1, 1, 1);
  // Width and height stand big-endian from byte 16 on. Libpng refuses a wrong checksum, too.
  png.replace(16, 8, std::string("\x00\x00\xff\xff\x00\x00\xff\xff", 8));
  EXPECT_FALSE(DecodeImage(png, kColours, "x").ok());
  std::string jpeg = EncodeJpeg(Flat(8, 8, {1}), 8, 8, 1);
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xff\xdc\xff\xdc");
  ExpectError(jpeg, absl::StatusCode::kInvalidArgument, "got 65500 x 65500");
}

TEST(DecodeImageTest, EveryTruncationIsAnErrorAndNoCrash) {
  std::vector<uint8_t> noise;
  for (int i = 0; i < 16 * 16 * 3; ++i) noise.push_back(static_cast<uint8_t>(i * i * 31 + i * 7));
  const std::string png = EncodePng(noise, 16, 16, 3);
  for (const std::string& whole :
       {png, EncodeJpeg(noise, 16, 16, 3), EncodeJpeg(noise, 16, 16, 3, /*progressive=*/true)}) {
    ASSERT_TRUE(DecodeImage(whole, Whole(3), "x").ok());
    // The last bytes of a file are its end mark, which an image can do without.
    for (size_t size = 0; size + 16 < whole.size(); ++size) {
      EXPECT_FALSE(DecodeImage(whole.substr(0, size), Whole(3), "x").ok()) << size;
    }
  }
}

TEST(DecodeImageTest, DamagedBytesAreAnswerOrErrorButNeverACrash) {
  std::vector<uint8_t> noise;
  for (int i = 0; i < 9 * 11 * 3; ++i) noise.push_back(static_cast<uint8_t>(i * i * 31 + i * 7));
  for (const std::string& whole : {EncodePng(noise, 9, 11, 3), EncodeJpeg(noise, 9, 11, 3),
                                   EncodeJpeg(noise, 9, 11, 3, /*progressive=*/true)}) {
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const char flip : {'\x01', '\x80', '\xff'}) {
        std::string damaged = whole;
        damaged[at] ^= flip;
        const auto image = DecodeImage(damaged, Whole(3), "x");
        if (!image.ok()) continue;
        EXPECT_EQ(image->pixels.size(),
                  static_cast<size_t>(image->height * image->width * image->channels));
      }
    }
  }
}

}  // namespace
}  // namespace torchps
