#include "torchps/worker/kernels/cuda_launcher.h"

#include <string>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "torchps/common/process/found_functions.h"
#include "torchps/worker/kernels/kernel_shapes.h"
#include "torchps/worker/kernels/nvrtc.h"

namespace torchps {
namespace {

// Constants of cuda.h.
constexpr int kSuccess = 0;
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;

absl::StatusOr<CudaDriver> FindDriver() {
  CudaDriver driver;
  absl::StatusOr<FoundFunctions> library = FoundFunctions::Load("libcuda.so.1");
  if (library.ok()) {
    library->Find("cuInit", &driver.init);
    library->Find("cuDeviceGet", &driver.device);
    library->Find("cuDeviceGetAttribute", &driver.attribute);
    library->Find("cuDevicePrimaryCtxRetain", &driver.retain_context);
    library->Find("cuDevicePrimaryCtxRelease_v2", &driver.release_context);
    library->Find("cuCtxPushCurrent_v2", &driver.push_context);
    library->Find("cuCtxPopCurrent_v2", &driver.pop_context);
    library->Find("cuModuleLoadData", &driver.load_module);
    library->Find("cuModuleUnload", &driver.unload_module);
    library->Find("cuModuleGetFunction", &driver.function);
    library->Find("cuLaunchKernel", &driver.launch);
    library->Find("cuGetErrorString", &driver.error_text);
  }
  const absl::Status& missing = library.ok() ? library->status() : library.status();
  if (missing.ok()) return driver;
  return absl::UnavailableError(
      absl::StrCat("no NVIDIA driver is to be found (libcuda.so.1): ", missing.message()));
}

absl::Status CudaError(const CudaDriver& driver, absl::string_view what, int result) {
  if (result == kSuccess) return absl::OkStatus();
  const char* text = nullptr;
  if (driver.error_text(result, &text) != kSuccess || text == nullptr) text = "unknown error";
  return absl::InternalError(absl::StrCat(what, " failed: ", text));
}

// Makes a context current for the calling thread, and restores the previous context at the end.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, CudaDriver::Context context)
      : driver_(driver), result_(driver.push_context(context)) {}
  ~CurrentContext() {
    CudaDriver::Context context;
    if (result_ == kSuccess) driver_.pop_context(&context);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  int result() const { return result_; }

 private:
  const CudaDriver& driver_;
  const int result_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KernelLauncher>> CudaLauncher::Create(int device) {
  const absl::StatusOr<CudaDriver> driver = FindDriver();
  if (!driver.ok()) return driver.status();
  int handle = 0;
  int result = driver->init(0);
  if (result == kSuccess) result = driver->device(&handle, device);
  CudaDriver::Context context = nullptr;
  if (result == kSuccess) result = driver->retain_context(&context, handle);
  if (absl::Status status = CudaError(*driver, "using the GPU", result); !status.ok()) {
    return status;
  }
  auto launcher = absl::WrapUnique(new CudaLauncher(*driver, handle, context));
  if (absl::Status status = launcher->Load(); !status.ok()) return status;
  return launcher;
}

CudaLauncher::CudaLauncher(const CudaDriver& driver, int device, CudaDriver::Context context)
    : driver_(driver), device_(device), context_(context) {}

CudaLauncher::~CudaLauncher() {
  {
    const CurrentContext current(driver_, context_);
    if (module_ != nullptr && current.result() == kSuccess) driver_.unload_module(module_);
  }
  driver_.release_context(device_);
}

absl::Status CudaLauncher::Load() {
  int major = 0;
  int minor = 0;
  int result = driver_.attribute(&major, kComputeCapabilityMajor, device_);
  if (result == kSuccess) result = driver_.attribute(&minor, kComputeCapabilityMinor, device_);
  if (absl::Status status = CudaError(driver_, "asking for the GPU's kind", result); !status.ok()) {
    return status;
  }
  const absl::StatusOr<std::string> binary = CompileKernels(major, minor);
  if (!binary.ok()) return binary.status();
  const CurrentContext current(driver_, context_);
  result = current.result();
  if (result == kSuccess) result = driver_.load_module(&module_, binary->data());
  for (size_t i = 0; i < kKernelCount && result == kSuccess; ++i) {
    result = driver_.function(&functions_[i], module_, kKernelNames[i]);
  }
  return CudaError(driver_, "loading the kernels", result);
}

absl::Status CudaLauncher::Launch(Kernel kernel, int64_t blocks, absl::Span<void* const> arguments,
                                  Stream stream) {
  const auto index = static_cast<size_t>(kernel);
  const CurrentContext current(driver_, context_);
  int result = current.result();
  if (result == kSuccess) {
    result = driver_.launch(functions_[index], static_cast<unsigned>(blocks), 1, 1, kBlockThreads,
                            1, 1, /*shared_bytes=*/0, stream, arguments.data(),
                            /*extra=*/nullptr);
  }
  return CudaError(driver_, absl::StrCat("starting the kernel ", kKernelNames[index]), result);
}

}  // namespace torchps
