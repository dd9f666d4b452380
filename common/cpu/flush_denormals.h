#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace torchps {

// While it lives, this thread's arithmetic takes numbers below the smallest normal float32 for
// zero, and gives zero in their place (FTZ and DAZ of x86).
//
// Why: moments of elements that no longer get a gradient decay into such denormals, and stay there
// for tens of thousands of steps, in which every operation on them is done by the processor's
// microcode, a hundred times slower. Flushing in the kernels by comparisons would leave
// intermediate results, such as a square, and cost operations in every pass; the mode costs two
// instructions per call and is the same in scalar and vector code of every instruction set, so the
// bits are too.
//
// Ends as it began, also where scopes nest. On other architectures does nothing: results there
// differ by less than 1.2e-38 per operation.
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

  // The compiler knows no dependence of arithmetic on the mode, but it moves no memory access, and
  // so no result, across this.
  static void Set(unsigned mode) {
    asm volatile("" ::: "memory");
    _mm_setcsr(mode);
    asm volatile("" ::: "memory");
  }

  const unsigned before_;
#endif
};

}  // namespace torchps
