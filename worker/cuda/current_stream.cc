#include "worker/cuda/current_stream.h"

#include <cstddef>
#include <type_traits>

#include "c10/core/Stream.h"
#include "c10/core/impl/VirtualGuardImpl.h"

namespace torchps {
namespace {

// Newer torch versions expose the driver's stream handle; older versions only in the CUDA headers.
template <typename Stream>
auto FindHandle(int) -> decltype(&Stream::native_handle) {
  return &Stream::native_handle;
}
template <typename Stream>
std::nullptr_t FindHandle(...) {
  return nullptr;
}

template <typename Handle>
CurrentStream WithHandle(c10::Device device, Handle handle) {
  if constexpr (std::is_null_pointer_v<Handle>) {
    return nullptr;
  } else {
    return [device, handle] {
      const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
      return (stream.*handle)();
    };
  }
}

}  // namespace

CurrentStream GetCurrentStream(c10::Device device) {
  return WithHandle(device, FindHandle<c10::Stream>(0));
}

}  // namespace torchps
