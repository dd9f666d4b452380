#pragma once

#include <functional>

#include "c10/core/Device.h"
#include "worker/kernels/kernel_launcher.h"

namespace torchps {

// The driver's handle of the stream that the calling thread computes on. Thread-safe.
using CurrentStream = std::function<KernelLauncher::Stream()>;

// Null: this torch does not tell such handles.
CurrentStream GetCurrentStream(c10::Device device);

}  // namespace torchps
