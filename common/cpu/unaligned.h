#pragma once

#include <cstdint>

namespace torchps {

// Numbers at any byte address. Payloads are read and written where the network has them, and one
// begins wherever its header ended; through these types the compiler emits unaligned vector loads
// and stores, and assumes nothing else. They may also look at a float's bits. The attributes are
// GCC's and Clang's.
using UnalignedFloat __attribute__((aligned(1), may_alias)) = float;
using UnalignedUint16 __attribute__((aligned(1), may_alias)) = uint16_t;
using UnalignedUint32 __attribute__((aligned(1), may_alias)) = uint32_t;

inline const UnalignedFloat* AtAnyAddress(const float* pointer) {
  return reinterpret_cast<const UnalignedFloat*>(pointer);
}

}  // namespace torchps
