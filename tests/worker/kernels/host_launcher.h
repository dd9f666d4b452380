#pragma once

#include <memory>

#include "torchps/worker/kernels/kernel_launcher.h"

namespace torchps {

// Runs the source text of the GPU kernels on the host. Each GPU thread is a host thread, blocks run
// one after another, and barriers replace warp and block synchronization. Sanitizers can therefore
// check the kernels' memory accesses and data races within a block. Launch() blocks until the
// kernel ends.
std::unique_ptr<KernelLauncher> MakeHostLauncher();

}  // namespace torchps
