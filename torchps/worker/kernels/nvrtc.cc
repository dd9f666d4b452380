#include "torchps/worker/kernels/nvrtc.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "torchps/common/process/found_functions.h"
#include "torchps/worker/kernels/kernel_sources.h"

namespace torchps {
namespace {

// Functions of nvrtc.h. Each returns 0 on success.
struct Nvrtc {
  using Program = void*;

  int (*create)(Program*, const char* text, const char* name, int headers,
                const char* const* header_texts, const char* const* header_names);
  int (*destroy)(Program*);
  int (*compile)(Program, int options, const char* const* option_texts);
  int (*binary_size)(Program, size_t*);
  int (*binary)(Program, char*);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  const char* (*error_text)(int);
};

absl::StatusOr<Nvrtc> FindNvrtc(const char* name) {
  absl::StatusOr<FoundFunctions> library = FoundFunctions::Load(name);
  if (!library.ok()) return library.status();
  Nvrtc nvrtc;
  library->Find("nvrtcCreateProgram", &nvrtc.create);
  library->Find("nvrtcDestroyProgram", &nvrtc.destroy);
  library->Find("nvrtcCompileProgram", &nvrtc.compile);
  library->Find("nvrtcGetCUBINSize", &nvrtc.binary_size);
  library->Find("nvrtcGetCUBIN", &nvrtc.binary);
  library->Find("nvrtcGetProgramLogSize", &nvrtc.log_size);
  library->Find("nvrtcGetProgramLog", &nvrtc.log);
  library->Find("nvrtcGetErrorString", &nvrtc.error_text);
  if (!library->status().ok()) return library->status();
  return nvrtc;
}

absl::StatusOr<Nvrtc> FindNvrtc() {
  absl::Status missing;
  // Torch's helper library finds and loads the NVRTC that pip installed with torch.
  for (const char* const name : {"libcaffe2_nvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"}) {
    absl::StatusOr<Nvrtc> nvrtc = FindNvrtc(name);
    if (nvrtc.ok()) return nvrtc;
    missing = nvrtc.status();
  }
  return absl::UnavailableError(absl::StrCat(
      "no NVRTC is to be found (libnvrtc.so.13 or .12), which compiles kernels for a GPU: ",
      missing.message()));
}

// Replaces the standard headers that the sources include, because NVRTC does not contain any.
constexpr KernelSource kStandard[] = {{"cstdint", R"(#pragma once
using int8_t = signed char;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using uintptr_t = unsigned long long;
)"},
                                      {"cstring", R"(#pragma once
namespace std {
using ::memcpy;
}
)"}};

constexpr char kProgram[] = R"(#include "torchps/worker/kernels/encoding_kernels.h"
#include "torchps/worker/kernels/scan_kernels.h"
#include "torchps/worker/kernels/top_k_kernels.h"
)";

absl::Status Compile(const Nvrtc& nvrtc, Nvrtc::Program program, int major, int minor) {
  const std::string architecture = absl::StrCat("-arch=sm_", major, minor);
  const char* const options[] = {architecture.c_str(), "-std=c++17",     "-fmad=false",
                                 "-ftz=false",         "-prec-div=true", "-prec-sqrt=true"};
  const int result = nvrtc.compile(program, sizeof(options) / sizeof(options[0]), options);
  if (result == 0) return absl::OkStatus();
  size_t size = 0;
  nvrtc.log_size(program, &size);
  std::string log(size, '\0');
  if (size > 0) nvrtc.log(program, log.data());
  const std::vector<absl::string_view> lines = absl::StrSplit(log.c_str(), '\n');
  return absl::InternalError(absl::StrCat("NVRTC does not compile the kernels for sm_", major,
                                          minor, ": ", nvrtc.error_text(result), ", ",
                                          lines.front()));
}

}  // namespace

absl::StatusOr<std::string> CompileKernels(int major, int minor) {
  const absl::StatusOr<Nvrtc> nvrtc = FindNvrtc();
  if (!nvrtc.ok()) return nvrtc.status();
  std::vector<const char*> names, texts;
  const auto add = [&](const KernelSource& source) {
    names.push_back(source.name);
    texts.push_back(source.text);
  };
  for (const KernelSource& source : kStandard) add(source);
  for (const KernelSource& source : KernelSources()) add(source);
  Nvrtc::Program program = nullptr;
  int result = nvrtc->create(&program, kProgram, "torchps", static_cast<int>(names.size()),
                             texts.data(), names.data());
  if (result != 0) {
    return absl::InternalError(absl::StrCat("NVRTC has failed: ", nvrtc->error_text(result)));
  }
  absl::Status status = Compile(*nvrtc, program, major, minor);
  std::string binary;
  if (status.ok()) {
    size_t size = 0;
    result = nvrtc->binary_size(program, &size);
    binary.resize(size);
    if (result == 0) result = nvrtc->binary(program, binary.data());
    if (result != 0) {
      status = absl::InternalError(absl::StrCat("NVRTC has failed: ", nvrtc->error_text(result)));
    }
  }
  nvrtc->destroy(&program);
  if (!status.ok()) return status;
  return binary;
}

}  // namespace torchps
