#include "torchps/common/cpu/streaming_copy.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace torchps {

#ifdef __SSE2__
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kLineBytes = 64;
constexpr size_t kPages = 4;
constexpr size_t kGroupBytes = kPages * kPageBytes;

// Copies a cache line and prefetches the same line of the next group of kPages pages. The source
// may be unaligned.
inline void CopyLine(uint8_t* destination, const uint8_t* source) {
  _mm_prefetch(reinterpret_cast<const char*>(source + kGroupBytes), _MM_HINT_T0);
  const auto* from = reinterpret_cast<const __m128i*>(source);
  auto* to = reinterpret_cast<__m128i*>(destination);
  const __m128i a = _mm_loadu_si128(from);
  const __m128i b = _mm_loadu_si128(from + 1);
  const __m128i c = _mm_loadu_si128(from + 2);
  const __m128i d = _mm_loadu_si128(from + 3);
  _mm_stream_si128(to, a);
  _mm_stream_si128(to + 1, b);
  _mm_stream_si128(to + 2, c);
  _mm_stream_si128(to + 3, d);
}

}  // namespace

void StreamingCopy(void* destination, const void* source, size_t bytes) {
  auto* to = static_cast<uint8_t*>(destination);
  const auto* from = static_cast<const uint8_t*>(source);
  // Streaming stores need an aligned destination.
  const size_t head = (kLineBytes - reinterpret_cast<uintptr_t>(to) % kLineBytes) % kLineBytes;
  if (bytes < head + kGroupBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= kGroupBytes; bytes -= kGroupBytes) {
    for (size_t line = 0; line < kPageBytes; line += kLineBytes) {
      for (size_t page = 0; page < kGroupBytes; page += kPageBytes) {
        CopyLine(to + page + line, from + page + line);
      }
    }
    to += kGroupBytes;
    from += kGroupBytes;
  }
  _mm_sfence();
  std::memcpy(to, from, bytes);
}
#else
void StreamingCopy(void* destination, const void* source, size_t bytes) {
  std::memcpy(destination, source, bytes);
}
#endif

}  // namespace torchps
