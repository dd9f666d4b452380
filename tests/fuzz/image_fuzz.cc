// Fuzzes the JPEG and PNG decoders. The first byte selects the requested size and channels.

#include <string>

#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_target.h"
#include "torchps/data/image/decode_image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  if (size == 0) return 0;
  const int64_t side = 1 + data[0] / 2 % 8;
  const ImageSize wanted{data[0] % 2 == 0 ? 3 : 1, side, side};
  const absl::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const absl::StatusOr<DecodedImage> image = DecodeImage(bytes, wanted, "x");
  if (!image.ok()) return 0;
  FUZZ_CHECK(image->channels == wanted.channels && image->height > 0 && image->width > 0);
  FUZZ_CHECK(static_cast<int64_t>(image->pixels.size()) ==
             image->channels * image->height * image->width);
  uint8_t planes[3 * 8 * 8];
  ResizeToPlanes(*image, side, side, planes);
  return 0;
}
