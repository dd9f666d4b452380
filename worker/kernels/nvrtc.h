#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace torchps {

// Compiles the kernels (kernel_sources.h) for GPUs of the compute capability `major`.`minor`, and
// gives what the driver loads. NVRTC is the library of CUDA that compiles at run time: every CUDA
// torch of pip brings it. It is loaded where it is needed, so building takes nothing of CUDA's, and
// no GPU is needed here.
//
// No multiplication is fused with an addition, and denormals stay: with the divisions and roots of
// IEEE 754 the kernels so give the same bits as the host. Takes about a second. Thread-safe.
//
// UNAVAILABLE: no NVRTC is to be found. INTERNAL: it does not compile the kernels, or not for such
// a GPU; the sentence has the first line of what it says.
absl::StatusOr<std::string> CompileKernels(int major, int minor);

}  // namespace torchps
