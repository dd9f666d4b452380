#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// The image size that a model expects.
struct ImageSize {
  int64_t channels = 3;  // 3: red, green, blue; 1: gray
  int64_t height = 0;
  int64_t width = 0;
};

// A decoded image: row by row, then pixel by pixel, then channel by channel.
struct DecodedImage {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;
};

// Decodes a JPEG or PNG file's `bytes` into `wanted.channels` channels of 8 bits. Decodes a JPEG
// that is much larger than `wanted` at a half, a quarter or an eighth of the size, never below
// `wanted`, because this is much faster. Otherwise the size is the file's. Ignores EXIF
// orientation.
//
// Keeps the values in the file: divides 16-bit values by 257 and does not apply gamma. Converts
// color to gray with JPEG's weights. Composites transparent pixels on black. Converts a CMYK JPEG
// to RGB.
//
// Messages begin with `name`. DATA_LOSS: the file is damaged or truncated. INVALID_ARGUMENT: the
// file is neither JPEG nor PNG, or contains more than 2^26 pixels.
absl::StatusOr<DecodedImage> DecodeImage(absl::string_view bytes, const ImageSize& wanted,
                                         const std::string& name);

// Stretches `image` to `height` x `width` pixels and writes them to `planes`: channel by channel,
// then row by row. Interpolates linearly. If it shrinks the image, each pixel is the weighted mean
// of all pixels that it covers, as in Pillow's BILINEAR and in torchvision's resize with antialias.
// REQUIRES: `image` is not empty, height >= 1, width >= 1, and `planes` holds channels * height *
// width bytes.
void ResizeToPlanes(const DecodedImage& image, int64_t height, int64_t width, uint8_t* planes);

}  // namespace torchps
