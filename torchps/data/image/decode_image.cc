#include "torchps/data/image/decode_image.h"

#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace torchps {
namespace {

// Limits the memory that a damaged header can request. An image of this size has 200 MB in color.
constexpr int64_t kMaxPixels = int64_t{1} << 26;

constexpr absl::string_view kJpegMagic("\xff\xd8\xff", 3);
constexpr absl::string_view kPngMagic("\x89PNG\r\n\x1a\n", 8);

absl::Status CheckSize(const std::string& name, int64_t height, int64_t width) {
  if (height >= 1 && width >= 1 && height <= kMaxPixels / width) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: expected an image of 1 to %d pixels, got %d x %d", name, kMaxPixels, height, width));
}

// Returns value * part / 255, rounded.
uint8_t Part(int value, int part) { return static_cast<uint8_t>((value * part + 127) / 255); }

// Converts each pixel: `convert` writes `channels` bytes from image.channels bytes.
template <typename Convert>
void ConvertPixels(int64_t channels, DecodedImage& image, const Convert& convert) {
  const int64_t pixels = image.height * image.width;
  std::vector<uint8_t> converted(pixels * channels);
  for (int64_t i = 0; i < pixels; ++i) {
    convert(image.pixels.data() + i * image.channels, converted.data() + i * channels);
  }
  image.pixels = std::move(converted);
  image.channels = channels;
}

// Composites an image on black. The last channel is the opacity.
void OnBlack(DecodedImage& image) {
  const int64_t channels = image.channels - 1;
  ConvertPixels(channels, image, [channels](const uint8_t* from, uint8_t* to) {
    for (int64_t c = 0; c < channels; ++c) to[c] = Part(from[c], from[channels]);
  });
}

// Converts cyan, magenta, yellow and black to RGB. 255 means no ink, as in Adobe's files; browsers
// and Pillow read all CMYK JPEGs this way.
void InksToColours(DecodedImage& image) {
  ConvertPixels(3, image, [](const uint8_t* from, uint8_t* to) {
    for (int c = 0; c < 3; ++c) to[c] = Part(from[c], from[3]);
  });
}

// Converts gray to color, or color to gray with ITU-R BT.601's weights, like JPEG and Pillow.
void WithChannels(int64_t channels, DecodedImage& image) {
  if (channels == image.channels) return;
  if (channels == 3) {
    ConvertPixels(3, image, [](const uint8_t* from, uint8_t* to) { std::fill_n(to, 3, *from); });
    return;
  }
  ConvertPixels(1, image, [](const uint8_t* from, uint8_t* to) {
    *to = static_cast<uint8_t>((from[0] * 19595 + from[1] * 38470 + from[2] * 7471 + 0x8000) >> 16);
  });
}

// libjpeg's error handler. It must not return from an error.
struct JpegErrors {
  jpeg_error_mgr base;  // first, so that a pointer to it is also a pointer to this struct
  std::jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void OnJpegError(j_common_ptr info) {
  auto* const errors = reinterpret_cast<JpegErrors*>(info->err);
  errors->base.format_message(info, errors->text);
  std::longjmp(errors->jump, 1);
}

// Converts warnings about lost pixels to errors; libjpeg would fill these pixels with gray. Most
// other warnings are harmless.
void OnJpegMessage(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
      OnJpegError(info);
  }
}

// Reads one JPEG. On error, libjpeg leaves these methods by longjmp, so only the destructor frees
// resources.
class JpegReader {
 public:
  JpegReader() {
    std::memset(&info_, 0, sizeof(info_));
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = &OnJpegError;
    errors_.base.emit_message = &OnJpegMessage;
    errors_.text[0] = '\0';
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Returns false on failure; error() is the reason.
  bool ReadHeader(const unsigned char* bytes, size_t size) {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, bytes, size);
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  int64_t height() const { return info_.image_height; }
  int64_t width() const { return info_.image_width; }
  bool is_for_print() const {
    return info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
  }

  // Begins decoding and sets the shape of `image`: four channels for CMYK.
  bool Start(const ImageSize& wanted, DecodedImage* image) {
    if (setjmp(errors_.jump) != 0) return false;
    info_.out_color_space = is_for_print()         ? JCS_CMYK
                            : wanted.channels == 1 ? JCS_GRAYSCALE
                                                   : JCS_RGB;
    info_.scale_num = 1;
    info_.scale_denom = 1;
    for (unsigned denominator : {2u, 4u, 8u}) {
      if (height() / denominator >= wanted.height && width() / denominator >= wanted.width) {
        info_.scale_denom = denominator;
      }
    }
    jpeg_start_decompress(&info_);
    image->channels = info_.output_components;
    image->height = info_.output_height;
    image->width = info_.output_width;
    return true;
  }

  // REQUIRES: `pixels` is large enough for the shape that Start() set.
  bool ReadPixels(uint8_t* pixels) {
    if (setjmp(errors_.jump) != 0) return false;
    const size_t row_bytes = size_t{info_.output_width} * info_.output_components;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + info_.output_scanline * row_bytes;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  const char* error() const { return errors_.text; }

 private:
  jpeg_decompress_struct info_;
  JpegErrors errors_;
};

absl::StatusOr<DecodedImage> DecodeJpeg(absl::string_view bytes, const ImageSize& wanted,
                                        const std::string& name) {
  const auto damaged = [&name](const JpegReader& reader) {
    return absl::DataLossError(absl::StrFormat(
        "%s: expected a whole JPEG image, got a damaged one (%s)", name, reader.error()));
  };
  JpegReader reader;
  if (!reader.ReadHeader(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size())) {
    return damaged(reader);
  }
  if (absl::Status size = CheckSize(name, reader.height(), reader.width()); !size.ok()) return size;
  DecodedImage image;
  if (!reader.Start(wanted, &image)) return damaged(reader);
  image.pixels.resize(image.height * image.width * image.channels);
  if (!reader.ReadPixels(image.pixels.data())) return damaged(reader);
  if (reader.is_for_print()) {
    InksToColours(image);
    WithChannels(wanted.channels, image);
  }
  return image;
}

// Reads one PNG. libpng leaves the methods by longjmp, so only the destructor frees resources.
//
// Returns the numbers as stored; gAMA, sRGB and iCCP chunks are ignored.
class PngReader {
 public:
  explicit PngReader(absl::string_view bytes) : left_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &OnError, &OnWarning);
    info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // Returns false on failure; error() is the reason.
  bool ReadHeader() {
    if (png_ == nullptr || info_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, &OnRead);
    png_read_info(png_, info_);
    return true;
  }

  int64_t height() const { return png_get_image_height(png_, info_); }
  int64_t width() const { return png_get_image_width(png_, info_); }

  // Begins decoding to 8 bits and sets the shape of `image`: 1 to 4 channels. If there are two or
  // four channels, the last is the opacity.
  bool Start(DecodedImage* image) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_expand(png_);
    png_set_scale_16(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    image->channels = png_get_channels(png_, info_);
    image->height = height();
    image->width = width();
    return true;
  }

  // REQUIRES: `rows` points to each row of the shape that Start() set.
  bool ReadPixels(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    return true;
  }

  const char* error() const { return error_; }

 private:
  [[noreturn]] static void OnError(png_structp png, png_const_charp message) {
    auto* const reader = static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(reader->error_, message, sizeof(reader->error_) - 1);
    png_longjmp(png, 1);
  }
  static void OnWarning(png_structp, png_const_charp) {}
  static void OnRead(png_structp png, png_bytep to, size_t size) {
    auto* const reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > reader->left_.size()) png_error(png, "it ends early");
    std::memcpy(to, reader->left_.data(), size);
    reader->left_.remove_prefix(size);
  }

  absl::string_view left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char error_[100] = "no memory";
};

absl::StatusOr<DecodedImage> DecodePng(absl::string_view bytes, const ImageSize& wanted,
                                       const std::string& name) {
  PngReader reader(bytes);
  const auto damaged = [&] {
    return absl::DataLossError(absl::StrFormat(
        "%s: expected a whole PNG image, got a damaged one (%s)", name, reader.error()));
  };
  if (!reader.ReadHeader()) return damaged();
  if (absl::Status size = CheckSize(name, reader.height(), reader.width()); !size.ok()) return size;
  DecodedImage image;
  if (!reader.Start(&image)) return damaged();
  image.pixels.resize(image.height * image.width * image.channels);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < image.height; ++y) {
    rows.push_back(image.pixels.data() + y * image.width * image.channels);
  }
  if (!reader.ReadPixels(rows.data())) return damaged();
  if (image.channels == 2 || image.channels == 4) OnBlack(image);
  WithChannels(wanted.channels, image);
  return image;
}

}  // namespace

absl::StatusOr<DecodedImage> DecodeImage(absl::string_view bytes, const ImageSize& wanted,
                                         const std::string& name) {
  if (absl::StartsWith(bytes, kJpegMagic)) return DecodeJpeg(bytes, wanted, name);
  if (absl::StartsWith(bytes, kPngMagic)) return DecodePng(bytes, wanted, name);
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": expected a JPEG or PNG image, got ",
                   bytes.empty() ? "an empty file" : "something else"));
}

namespace {

// The source pixels that contribute to a result pixel along one axis.
struct Window {
  int64_t end() const { return first + static_cast<int64_t>(weights.size()); }

  int64_t first = 0;
  std::vector<float> weights;  // for first, first + 1, ...; the sum is 1
};

std::vector<Window> Windows(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(scale, 1.0);
  std::vector<Window> windows(to);
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, std::llround(centre - reach));
    const auto end = std::min<int64_t>(from, std::llround(centre + reach));
    Window& window = windows[i];
    window.first = std::min(first, from - 1);
    double sum = 0;
    for (int64_t x = window.first; x < std::max(end, window.first + 1); ++x) {
      const double distance = std::abs(static_cast<double>(x) + 0.5 - centre) / reach;
      window.weights.push_back(static_cast<float>(std::max(0.0, 1.0 - distance)));
      sum += window.weights.back();
    }
    for (float& weight : window.weights) weight = static_cast<float>(weight / sum);
  }
  return windows;
}

}  // namespace

void ResizeToPlanes(const DecodedImage& image, int64_t height, int64_t width, uint8_t* planes) {
  const int64_t channels = image.channels;
  const std::vector<Window> across = Windows(image.width, width);
  const std::vector<Window> down = Windows(image.height, height);
  // Resize one image row at a time horizontally, and add it to the sums of all result rows that it
  // contributes to. An image may be a million times taller than wide, and all resized rows together
  // would not fit in memory.
  std::vector<float> row(width * channels);
  std::vector<float> sums(height * width * channels);
  int64_t begin = 0;  // the first unfinished result row
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* const source = image.pixels.data() + y * image.width * channels;
    float* value = row.data();
    for (const Window& window : across) {
      for (int64_t c = 0; c < channels; ++c) {
        const uint8_t* pixel = source + window.first * channels + c;
        float sum = 0;
        for (float weight : window.weights) {
          sum += weight * *pixel;
          pixel += channels;
        }
        *value++ = sum;
      }
    }
    while (begin < height && down[begin].end() <= y) ++begin;
    for (int64_t to = begin; to < height && down[to].first <= y; ++to) {
      const float weight = down[to].weights[y - down[to].first];
      float* const sum = sums.data() + to * width * channels;
      for (int64_t i = 0; i < width * channels; ++i) sum[i] += weight * row[i];
    }
  }
  const float* sum = sums.data();
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < channels; ++c) {
        planes[(c * height + y) * width + x] =
            static_cast<uint8_t>(std::clamp(std::lround(*sum++), 0L, 255L));
      }
    }
  }
}

}  // namespace torchps
