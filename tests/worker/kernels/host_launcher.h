#pragma once

#include <memory>

#include "worker/kernels/kernel_launcher.h"

namespace torchps {

// Runs the very text of a GPU's kernels on the host: a thread for each of a block's, one block
// after the other, with barriers where a warp or a block waits for all of its threads. So
// sanitizers see what kernels do to memory, and what threads of a block do to each other. Launch()
// waits.
std::unique_ptr<KernelLauncher> MakeHostLauncher();

}  // namespace torchps
