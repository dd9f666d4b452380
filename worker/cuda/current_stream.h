#pragma once

#include <functional>

#include "c10/core/Device.h"
#include "worker/kernels/kernel_launcher.h"

namespace torchps {

// Returns the driver's handle of the calling thread's computing stream. Thread-safe.
using CurrentStream = std::function<KernelLauncher::Stream()>;

// Returns null if this torch version does not expose stream handles.
CurrentStream GetCurrentStream(c10::Device device);

}  // namespace torchps
