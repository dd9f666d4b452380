#include "worker/torch_error.h"

#include <stdexcept>

#include "c10/util/Exception.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(TorchErrorTest, KeepsTheFirstLineOfWhatTorchSays) {
  try {
    TORCH_CHECK(false, "CUDA error: out of memory\nFor debugging consider passing this and that.");
  } catch (const c10::Error& error) {
    const absl::Status status = TorchError("a training step", error);
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_EQ(status.message(), "a training step failed: CUDA error: out of memory");
  }
}

TEST(TorchErrorTest, TakesAnyOtherExceptionAsItIs) {
  EXPECT_EQ(TorchError("the evaluation", std::runtime_error("no more")).message(),
            "the evaluation failed: no more");
}

}  // namespace
}  // namespace torchps
