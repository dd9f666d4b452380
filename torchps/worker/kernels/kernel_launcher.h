#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace torchps {

enum class Kernel {
  kSumElements,
  kSumSums,
  kJudge,
  kScale,
  kKeepBfloat16,
  kKeepInt8,
  kTopKBegin,
  kTopKCount,
  kTopKPick,
  kTopKCountChunks,
  kTopKOffsets,
  kTopKWrite,
  kTakeBackBfloat16,
  kTakeBackInt8,
  kTakeBackTopK,
};

// In the order of Kernel.
inline constexpr const char* kKernelNames[] = {
    "TpsSumElements",      "TpsSumSums",         "TpsJudge",       "TpsScale",
    "TpsKeepBfloat16",     "TpsKeepInt8",        "TpsTopKBegin",   "TpsTopKCount",
    "TpsTopKPick",         "TpsTopKCountChunks", "TpsTopKOffsets", "TpsTopKWrite",
    "TpsTakeBackBfloat16", "TpsTakeBackInt8",    "TpsTakeBackTopK"};
inline constexpr size_t kKernelCount = sizeof(kKernelNames) / sizeof(kKernelNames[0]);

// Runs kernels on a GPU or, in tests, on the host.
//
// Implementations are thread-safe.
class KernelLauncher {
 public:
  // Driver handle of a stream; null is the device's default stream.
  using Stream = void*;

  virtual ~KernelLauncher() = default;

  // Queues `kernel` on the stream, with `blocks` > 0 thread blocks of kBlockThreads threads, and
  // returns without waiting. `arguments` points to the argument values, which are copied. INTERNAL:
  // the device rejects the kernel, perhaps because an earlier kernel failed.
  virtual absl::Status Launch(Kernel kernel, int64_t blocks, absl::Span<void* const> arguments,
                              Stream stream) = 0;
};

}  // namespace torchps
