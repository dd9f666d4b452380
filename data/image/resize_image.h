#pragma once

#include <cstdint>

#include "data/image/decode_image.h"

namespace torchps {

// Stretches `image` to `height` x `width` pixels and writes them to `planes`: channel by channel,
// then row by row. Interpolates linearly. If it shrinks the image, each pixel is the weighted mean
// of all pixels that it covers, as in Pillow's BILINEAR and in torchvision's resize with antialias.
// REQUIRES: `image` is not empty, height >= 1, width >= 1, and `planes` holds channels * height *
// width bytes.
void ResizeToPlanes(const DecodedImage& image, int64_t height, int64_t width, uint8_t* planes);

}  // namespace torchps
