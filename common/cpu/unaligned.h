#pragma once

#include <cstdint>

namespace torchps {

// Number types for access at any byte address. Payloads are read and written in the network
// buffers, and a payload begins directly behind a header of arbitrary length. These types make the
// compiler emit unaligned vector loads and stores. They may alias a float's bits. The attributes
// are specific to GCC and Clang.
using UnalignedFloat __attribute__((aligned(1), may_alias)) = float;
using UnalignedUint16 __attribute__((aligned(1), may_alias)) = uint16_t;
using UnalignedUint32 __attribute__((aligned(1), may_alias)) = uint32_t;

inline const UnalignedFloat* AtAnyAddress(const float* pointer) {
  return reinterpret_cast<const UnalignedFloat*>(pointer);
}

}  // namespace torchps
