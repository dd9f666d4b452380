#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace torchps {

// Enables flush-to-zero mode on this thread during the lifetime of this object. Arithmetic treats
// float32 inputs below the smallest normal number as zero and returns zero instead of such numbers
// (FTZ and DAZ on x86).
//
// Optimizer moments of elements that no longer receive a gradient decay into denormals and stay
// there for tens of thousands of steps. The processor handles each denormal operation in microcode,
// a hundred times slower. Comparisons in the kernels would miss intermediate results, such as
// squares, and cost operations in each pass. The mode costs two instructions per call. It acts
// alike in scalar and vector code, so the results are bit-identical for all instruction sets.
//
// The destructor restores the previous mode, so scopes may nest. On other architectures this class
// does nothing; results there differ by less than 1.2e-38 per operation.
class FlushDenormals {
 public:
#if defined(__SSE__)
  FlushDenormals() : before_(_mm_getcsr()) { Set(before_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushDenormals() { Set(before_); }
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__SSE__)
  static constexpr unsigned kFlushToZero = 0x8000;
  static constexpr unsigned kDenormalsAreZero = 0x0040;

  // The memory clobbers keep the compiler from moving memory accesses, and thus results, across the
  // mode change. The compiler is unaware that arithmetic depends on the mode.
  static void Set(unsigned mode) {
    asm volatile("" ::: "memory");
    _mm_setcsr(mode);
    asm volatile("" ::: "memory");
  }

  const unsigned before_;
#endif
};

}  // namespace torchps
