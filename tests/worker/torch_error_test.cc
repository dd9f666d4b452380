#include "torchps/worker/torch_error.h"

#include <stdexcept>
#include <string>

#include "absl/strings/match.h"
#include "c10/util/Exception.h"
#include "gtest/gtest.h"
#include "tests/testing/gpu.h"
#include "torch/types.h"

namespace torchps {
namespace {

TEST(TorchErrorTest, KeepsTheFirstLineOfTorchsMessage) {
  try {
    TORCH_CHECK(false, "CUDA error: out of memory\nFor debugging consider passing this and that.");
  } catch (const c10::Error& error) {
    const absl::Status status = TorchError("a training step", error);
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_EQ(status.message(), "a training step failed: CUDA error: out of memory");
  }
}

TEST(TorchErrorTest, KeepsOtherExceptionsUnchanged) {
  EXPECT_EQ(TorchError("the evaluation", std::runtime_error("no more")).message(),
            "the evaluation failed: no more");
}

// Returns ThrownError()'s status for an exception from `run`.
template <typename Run>
absl::Status Thrown(const Run& run) {
  try {
    run();
  } catch (...) {
    return ThrownError("on_step");
  }
  return absl::OkStatus();
}

struct Refusal {};

TEST(TorchErrorTest, ReportsThrownValuesThatAreNoExceptions) {
  EXPECT_EQ(Thrown([] { throw std::runtime_error("no more\nof it"); }),
            absl::InternalError("on_step failed: no more"));
  EXPECT_EQ(Thrown([] { throw "no more"; }), absl::InternalError("on_step failed: no more"));
  EXPECT_EQ(Thrown([] { throw std::string("no more"); }),
            absl::InternalError("on_step failed: no more"));
  EXPECT_EQ(Thrown([] { throw 7; }),
            absl::InternalError("on_step failed: it threw a value of type int, which is not a "
                                "std::exception"));
  EXPECT_TRUE(absl::StrContains(Thrown([] { throw Refusal(); }).message(), "Refusal"));
}

using TorchErrorOnAGpuTest = GpuTest;

TEST_F(TorchErrorOnAGpuTest, OutOfGpuMemoryIsReportedInOneLine) {
  try {
    // Exceeds the memory of any GPU.
    torch::empty({int64_t{1} << 48}, torch::TensorOptions().device(torch::kCUDA));
    FAIL() << "torch allocated a petabyte";
  } catch (const c10::Error& error) {
    const std::string message(TorchError("a training step", error).message());
    EXPECT_TRUE(absl::StrContains(message, "out of memory")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace torchps
