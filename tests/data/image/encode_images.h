#pragma once

#include <cstdint>
#include <cstdio>
// jpeglib.h uses FILE without including its declaration.
#include <jpeglib.h>
#include <png.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace torchps {

// Encodes `pixels` as a PNG file. The pixels are in rows, with `channels` bytes each: 1 is grey, 3
// is colour, 4 is colour and opacity.
inline std::string EncodePng(const std::vector<uint8_t>& pixels, int height, int width,
                             int channels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = height;
  image.width = width;
  image.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(bytes, '\0');
  EXPECT_NE(png_image_write_to_memory(&image, file.data(), &bytes, 0, pixels.data(), 0, nullptr), 0)
      << image.message;
  file.resize(bytes);
  return file;
}

// Encodes `pixels` as a JPEG file with 1, 3 or 4 channels. With 4 channels the pixels are CMYK,
// where 255 means no ink, and are stored as CMYK or YCCK.
inline std::string EncodeJpeg(std::vector<uint8_t> pixels, int height, int width, int channels,
                              bool progressive = false, bool is_ycck = false) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;  // error_exit ends the test
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &out, &size);
  info.image_height = height;
  info.image_width = width;
  info.input_components = channels;
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (is_ycck) jpeg_set_colorspace(&info, JCS_YCCK);
  jpeg_set_quality(&info, 95, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = pixels.data() + size_t{info.next_scanline} * width * channels;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<char*>(out), size);
  std::free(out);
  return file;
}

// Returns `height` x `width` pixels in one colour.
inline std::vector<uint8_t> Flat(int height, int width, const std::vector<uint8_t>& colour) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < height * width; ++i)
    pixels.insert(pixels.end(), colour.begin(), colour.end());
  return pixels;
}

}  // namespace torchps
