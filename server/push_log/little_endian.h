#pragma once

#include <cstdint>
#include <cstring>

namespace torchps {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written in memory order");

// Write and read numbers in the push log's files: little-endian, at any address.
template <typename Number>
void PutLittleEndian(uint8_t* destination, Number number) {
  std::memcpy(destination, &number, sizeof(number));
}

template <typename Number>
Number GetLittleEndian(const uint8_t* source) {
  Number number;
  std::memcpy(&number, source, sizeof(number));
  return number;
}

}  // namespace torchps
