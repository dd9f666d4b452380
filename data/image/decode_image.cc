#include "data/image/decode_image.h"

#include <cstddef>
#include <cstdio>
// Order matters: libjpeg's headers want FILE and size_t declared.
#include <jpeglib.h>
// After jpeglib.h, whose types it uses.
#include <jerror.h>
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace torchps {
namespace {

// 200 MB as colours; a damaged head may claim anything.
constexpr int64_t kMostPixels = int64_t{1} << 26;

constexpr absl::string_view kJpegMagic("\xff\xd8\xff", 3);
constexpr absl::string_view kPngMagic("\x89PNG\r\n\x1a\n", 8);

absl::Status CheckSize(const std::string& name, int64_t height, int64_t width) {
  if (height >= 1 && width >= 1 && height <= kMostPixels / width) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: expected an image of 1 to %d pixels, got %d x %d", name, kMostPixels, height, width));
}

// libjpeg's way to report: it never returns from an error.
struct JpegErrors {
  jpeg_error_mgr base;  // first, so that a pointer to it is one to this
  std::jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void OnJpegError(j_common_ptr info) {
  auto* const errors = reinterpret_cast<JpegErrors*>(info->err);
  errors->base.format_message(info, errors->text);
  std::longjmp(errors->jump, 1);
}

// Most warnings are about what other programs wrote carelessly; these are about lost pixels, which
// libjpeg would fill with grey.
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

// One JPEG. No method but the destructor has anything to destroy when libjpeg jumps out of it.
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

  // False: error() says why.
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

  // Settles how it is decoded, and says what comes out.
  bool Start(const ImageSize& wanted, DecodedImage* image) {
    if (setjmp(errors_.jump) != 0) return false;
    info_.out_color_space = wanted.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
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

  // `pixels` has room for what Start() said.
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
  if (reader.is_for_print()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": expected grey or red, green and blue, got CMYK, colours for print (convert it)"));
  }
  DecodedImage image;
  if (!reader.Start(wanted, &image)) return damaged(reader);
  image.pixels.resize(image.height * image.width * image.channels);
  if (!reader.ReadPixels(image.pixels.data())) return damaged(reader);
  return image;
}

absl::StatusOr<DecodedImage> DecodePng(absl::string_view bytes, const ImageSize& wanted,
                                       const std::string& name) {
  png_image png;
  std::memset(&png, 0, sizeof(png));
  png.version = PNG_IMAGE_VERSION;
  const auto damaged = [&] {
    return absl::DataLossError(absl::StrFormat(
        "%s: expected a whole PNG image, got a damaged one (%s)", name, png.message));
  };
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) return damaged();
  if (absl::Status size = CheckSize(name, png.height, png.width); !size.ok()) {
    png_image_free(&png);
    return size;
  }
  png.format = wanted.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  DecodedImage image{wanted.channels, png.height, png.width, {}};
  image.pixels.resize(PNG_IMAGE_SIZE(png));
  const png_color black = {0, 0, 0};
  if (png_image_finish_read(&png, &black, image.pixels.data(), /*row_stride=*/0,
                            /*colormap=*/nullptr) == 0) {
    return damaged();
  }
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

}  // namespace torchps
