#pragma once

#include <cstdint>

#include "data/image/decode_image.h"

namespace torchps {

// Stretches `image` to `height` x `width` pixels and writes them to `planes` as a model takes them:
// channel after channel, row after row. Linear interpolation; where it shrinks, each pixel is the
// weighted mean of all those that it covers (as Pillow's BILINEAR, and torchvision's resize with
// antialias). REQUIRES: image is not empty, height >= 1, width >= 1, room for channels * height *
// width bytes.
void ResizeToPlanes(const DecodedImage& image, int64_t height, int64_t width, uint8_t* planes);

}  // namespace torchps
