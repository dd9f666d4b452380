#include "torchps/storage/crc32c.h"

namespace torchps {
namespace {

// Polynomials over GF(2) modulo Castagnoli's, with the coefficient of x^0 in the highest bit, as in
// zlib's crc32_combine.
constexpr uint32_t kCastagnoli = 0x82f63b78;
constexpr uint32_t kOne = uint32_t{1} << 31;

uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kCastagnoli : b >> 1;
  }
  return product;
}

}  // namespace

uint32_t Crc32cCombine(uint32_t first, uint32_t second, uint64_t second_bytes) {
  // Appending `second_bytes` zero bytes multiplies a CRC by x^(8 * second_bytes).
  uint32_t square = kOne >> 8;  // x^8 at first, squared in each pass of the loop
  uint32_t power = kOne;
  for (; second_bytes != 0; second_bytes >>= 1) {
    if ((second_bytes & 1) != 0) power = Multiply(square, power);
    square = Multiply(square, square);
  }
  return Multiply(power, first) ^ second;
}

}  // namespace torchps
