#pragma once

namespace torchps {

// A float at any byte address. Gradients are applied out of the buffers that
// the network filled, where a payload begins wherever its header ended; read
// through this type the compiler emits unaligned vector loads and assumes
// nothing else. The attribute is GCC's and Clang's.
using UnalignedFloat __attribute__((aligned(1), may_alias)) = float;

inline const UnalignedFloat* AtAnyAddress(const float* pointer) {
  return reinterpret_cast<const UnalignedFloat*>(pointer);
}

}  // namespace torchps
