#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// The image size that a model expects.
struct ImageSize {
  int64_t channels = 3;  // 3: red, green, blue; 1: grey
  int64_t height = 0;
  int64_t width = 0;
};

// An image as decoded: row after row, within a row pixel after pixel, within it channel after
// channel.
struct DecodedImage {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;
};

// Decodes a JPEG or PNG file's `bytes` into `wanted.channels` channels of 8 bits. A JPEG far larger
// than `wanted` is decoded at a half, a quarter or an eighth of its size, never below `wanted`:
// that takes a fraction of the time. Otherwise the size is the file's. EXIF orientation is ignored.
//
// Numbers are those of the file: 16 bits are divided by 257, and no gamma is applied. Colours
// become grey with JPEG's weights. Transparent pixels are composited on black. A CMYK JPEG becomes
// red, green and blue.
//
// `name` begins the messages. DATA_LOSS: damaged or truncated. INVALID_ARGUMENT: neither JPEG nor
// PNG, or more than 2^26 pixels.
absl::StatusOr<DecodedImage> DecodeImage(absl::string_view bytes, const ImageSize& wanted,
                                         const std::string& name);

}  // namespace torchps
