#include "torchps/data/image/decode_image.h"

#include <zlib.h>

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

// Allows a difference of 3, because JPEG is lossy.
MATCHER_P(Near, value, "") { return std::abs(static_cast<int>(arg) - value) <= 3; }

ImageSize Whole(int64_t channels) { return {channels, 1 << 16, 1 << 16}; }

TEST(DecodeImageTest, DecodesPngExactly) {
  const std::vector<uint8_t> pixels = {255, 0, 0, 0, 255, 0, 0, 0, 255, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto image = DecodeImage(EncodePng(pixels, 2, 3, 3), Whole(3), "x.png");
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->height, 2);
  EXPECT_EQ(image->width, 3);
  EXPECT_EQ(image->channels, 3);
  EXPECT_THAT(image->pixels, ElementsAreArray(pixels));
}

TEST(DecodeImageTest, ConvertsGreyToColourAndColourToGrey) {
  const auto colours = DecodeImage(EncodePng({7, 200}, 1, 2, 1), Whole(3), "x.png");
  ASSERT_TRUE(colours.ok()) << colours.status();
  EXPECT_THAT(colours->pixels, ElementsAre(7, 7, 7, 200, 200, 200));
  const auto grey = DecodeImage(EncodePng({200, 100, 50}, 1, 1, 3), Whole(1), "x.png");
  ASSERT_TRUE(grey.ok()) << grey.status();
  EXPECT_THAT(grey->pixels, ElementsAre(124));
  const std::string jpeg = EncodeJpeg(Flat(8, 8, {120}), 8, 8, 1);
  EXPECT_THAT(DecodeImage(jpeg, Whole(3), "x.jpg")->pixels, Each(Near(120)));
  EXPECT_EQ(DecodeImage(jpeg, Whole(3), "x.jpg")->pixels.size(), 192u);
  EXPECT_EQ(DecodeImage(jpeg, Whole(1), "x.jpg")->pixels.size(), 64u);
}

TEST(DecodeImageTest, DecodesTransparentPixelsAsBlack) {
  const auto image =
      DecodeImage(EncodePng({9, 8, 7, 255, 250, 250, 250, 0}, 1, 2, 4), Whole(3), "x");
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_THAT(image->pixels, ElementsAre(9, 8, 7, 0, 0, 0));
}

TEST(DecodeImageTest, DecodesBaselineAndProgressiveJpeg) {
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

TEST(DecodeImageTest, ScalesLargeJpegsDownDuringDecoding) {
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

TEST(DecodeImageTest, RejectsAFileThatIsNoImage) {
  ExpectError("", absl::StatusCode::kInvalidArgument, "got an empty file");
  ExpectError("GIF89a...", absl::StatusCode::kInvalidArgument, "got something else");
  ExpectError("\xff\xd8\xff", absl::StatusCode::kDataLoss, "JPEG");
  ExpectError("\x89PNG\r\n\x1a\n", absl::StatusCode::kDataLoss, "PNG");
}

// The expected values are from Pillow's convert("RGB") and convert("L").
TEST(DecodeImageTest, ConvertsCmykLikePillow) {
  for (const bool is_ycck : {false, true}) {
    const std::string jpeg =
        EncodeJpeg(Flat(8, 8, {200, 55, 255, 204}), 8, 8, 4, /*progressive=*/false, is_ycck);
    const auto image = DecodeImage(jpeg, Whole(3), "x.jpg");
    ASSERT_TRUE(image.ok()) << image.status();
    ASSERT_EQ(image->pixels.size(), 192u);
    EXPECT_THAT(image->pixels[0], Near(160));
    EXPECT_THAT(image->pixels[1], Near(44));
    EXPECT_THAT(image->pixels[2], Near(204));
    const auto grey = DecodeImage(jpeg, Whole(1), "x.jpg");
    EXPECT_EQ(grey->pixels.size(), 64u);
    EXPECT_THAT(grey->pixels, Each(Near(97)));
  }
}

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string Chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto* const begin = reinterpret_cast<const Bytef*>(body.data());
  return BigEndian(data.size()) + body + BigEndian(crc32(0, begin, body.size()));
}

// Returns a PNG of one row with a gAMA chunk and the chunks `more`. If `interlace` is 1, `row`
// contains the passes, separated by zero bytes.
std::string Png(int width, int depth, int colour_type, const std::string& row,
                const std::string& more = "", int interlace = 0) {
  const std::string filtered = std::string(1, '\0') + row;
  std::string packed(compressBound(filtered.size()), '\0');
  uLongf size = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(filtered.data()), filtered.size());
  packed.resize(size);
  const std::string head = BigEndian(width) + BigEndian(1) + static_cast<char>(depth) +
                           static_cast<char>(colour_type) + std::string(2, '\0') +
                           static_cast<char>(interlace);
  return "\x89PNG\r\n\x1a\n" + Chunk("IHDR", head) + Chunk("gAMA", BigEndian(100000)) + more +
         Chunk("IDAT", packed) + Chunk("IEND", "");
}

std::vector<uint8_t> Decoded(const std::string& png, int64_t channels) {
  const auto image = DecodeImage(png, Whole(channels), "x");
  EXPECT_TRUE(image.ok()) << image.status();
  return image.ok() ? image->pixels : std::vector<uint8_t>();
}

// The expected values are the file's values, as in Pillow: gAMA does not change them.
TEST(DecodeImageTest, ScalesPngValuesOfEachDepthTo8Bits) {
  // 16 bits: 0x6042 / 257 is 95.9.
  EXPECT_THAT(Decoded(Png(2, 16, 0, "\x60\x42\xff\xff"), 1), ElementsAre(96, 255));
  EXPECT_THAT(Decoded(Png(1, 16, 2, "\x60\x42\xff\xff\x01\x01"), 3), ElementsAre(96, 255, 1));
  EXPECT_THAT(Decoded(Png(4, 1, 0, "\xa0"), 1), ElementsAre(255, 0, 255, 0));
  EXPECT_THAT(Decoded(Png(3, 2, 0, "\x1c"), 1), ElementsAre(0, 85, 255));
  EXPECT_THAT(Decoded(Png(2, 4, 0, "\x5b"), 1), ElementsAre(85, 187));
  // 0.299 * 200 + 0.587 * 100 + 0.114 * 50 is 124.2.
  EXPECT_THAT(Decoded(Png(1, 8, 2, "\xc8\x64\x32"), 1), ElementsAre(124));
  // An interlaced row of three pixels has two passes: pixels 0 and 2, then pixel 1.
  const std::string passes("\x0a\0\x1e\0\x14", 5);
  EXPECT_THAT(Decoded(Png(3, 8, 0, passes, "", /*interlace=*/1), 1), ElementsAre(10, 20, 30));
}

TEST(DecodeImageTest, MultipliesValuesByTheOpacityWithoutGamma) {
  // 200 * 51 / 255.
  EXPECT_THAT(Decoded(Png(1, 8, 4, "\xc8\x33"), 1), ElementsAre(40));
  EXPECT_THAT(Decoded(Png(1, 16, 6, "\xc8\xc8\x64\x64\x32\x32\x33\x33"), 3),
              ElementsAre(40, 20, 10));
  const std::string palette = Chunk("PLTE", "\x0a\x14\x1e\xc8\x64\x32") + Chunk("tRNS", "\xff\x80");
  EXPECT_THAT(Decoded(Png(2, 2, 3, "\x10", palette), 3), ElementsAre(10, 20, 30, 100, 50, 25));
  // The file declares 0x1234 as the transparent grey.
  EXPECT_THAT(Decoded(Png(2, 16, 0, "\x12\x34\x12\x35", Chunk("tRNS", "\x12\x34")), 1),
              ElementsAre(0, 18));
}

TEST(DecodeImageTest, RejectsAHugeImageBeforeAllocating) {
  std::string png = EncodePng({1}, 1, 1, 1);
  // Chunk() also writes the checksum that fits the changed size.
  png.replace(8, 25, Chunk("IHDR", BigEndian(65535) + BigEndian(65535) + png.substr(24, 5)));
  ExpectError(png, absl::StatusCode::kInvalidArgument, "got 65535 x 65535");
  std::string jpeg = EncodeJpeg(Flat(8, 8, {1}), 8, 8, 1);
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xff\xdc\xff\xdc");
  ExpectError(jpeg, absl::StatusCode::kInvalidArgument, "got 65500 x 65500");
}

TEST(DecodeImageTest, ReportsTruncatedImages) {
  std::vector<uint8_t> noise;
  for (int i = 0; i < 16 * 16 * 3; ++i) noise.push_back(static_cast<uint8_t>(i * i * 31 + i * 7));
  for (const std::string& whole : {EncodePng(noise, 16, 16, 3), EncodeJpeg(noise, 16, 16, 3),
                                   EncodeJpeg(noise, 16, 16, 3, /*progressive=*/true)}) {
    ASSERT_TRUE(DecodeImage(whole, Whole(3), "x").ok());
    // The last bytes of a file are the end marker. The image is complete without them.
    for (size_t size = 0; size + 16 < whole.size(); ++size) {
      EXPECT_FALSE(DecodeImage(whole.substr(0, size), Whole(3), "x").ok()) << size;
    }
  }
}

TEST(DecodeImageTest, DamagedBytesNeverCrash) {
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
