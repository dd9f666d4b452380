#include "tests/testing/gpu.h"

#include <cstdlib>

#include "absl/strings/string_view.h"
#include "torch/cuda.h"

namespace torchps {

void RequireGpu() {
  if (torch::cuda::is_available()) return;
  const char* const required = std::getenv("TORCHPS_REQUIRE_GPU");
  if (required != nullptr && absl::string_view(required) == "1") {
    FAIL() << "no usable GPU, although TORCHPS_REQUIRE_GPU=1 is set";
  }
  GTEST_SKIP() << "no usable GPU here";
}

}  // namespace torchps
