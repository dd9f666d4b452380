#include "worker/device.h"

#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/cuda.h"
#include "torch/types.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::string& name) {
  const absl::StatusOr<torch::Device> device = FindDevice(name);
  EXPECT_TRUE(absl::IsInvalidArgument(device.status())) << name << ": " << device.status();
  return std::string(device.status().message());
}

TEST(DeviceTest, TheCpuIsAlwaysThere) {
  const absl::StatusOr<torch::Device> device = FindDevice("cpu");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE(device->is_cpu());
  EXPECT_TRUE(UseDevice(*device).ok());
}

TEST(DeviceTest, ANameOfNoDeviceIsRefusedWithWhatIsExpected) {
  for (const std::string name : {"", "gpu", "cpu:1", "CUDA", "cuda:", "cuda:-1", "cuda:+1",
                                 "cuda: 1", "cuda:1x", "cuda0", "cuda:99999999999999999999"}) {
    EXPECT_THAT(Refusal(name), HasSubstr("expected cpu, cuda or cuda:INDEX")) << name;
  }
}

TEST(DeviceTest, AGpuThatIsNotThereIsRefusedByItsWholeIndex) {
  // Cut to eight bits these would be cuda:0 and cuda.
  EXPECT_THAT(Refusal("cuda:256"), HasSubstr("cuda"));
  EXPECT_THAT(Refusal("cuda:255"), HasSubstr("cuda"));
}

TEST(DeviceTest, ADeviceOfAnotherKindIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(CheckDevice(torch::kMeta)));
  EXPECT_TRUE(absl::IsInvalidArgument(UseDevice(torch::kMeta)));
}

TEST(DeviceTest, WithoutAGpuTheRefusalSaysWhatIsMissing) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "a GPU is here";
  EXPECT_THAT(Refusal("cuda"),
              ::testing::AnyOf(HasSubstr("built without CUDA"), HasSubstr("CUDA sees no GPU")));
  EXPECT_TRUE(absl::IsInvalidArgument(UseDevice(torch::kCUDA)));
}

TEST(DeviceTest, WithAGpuCudaIsTheFirstAndBecomesTheCurrentOne) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU is here";
  const absl::StatusOr<torch::Device> first = FindDevice("cuda");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->str(), "cuda:0");
  const auto count = static_cast<int>(torch::cuda::device_count());
  const absl::StatusOr<torch::Device> last = FindDevice("cuda:" + std::to_string(count - 1));
  ASSERT_TRUE(last.ok()) << last.status();
  std::thread([&] {
    EXPECT_TRUE(UseDevice(*last).ok());
    EXPECT_EQ(torch::zeros({1}, torch::kCUDA).device(), *last);
  }).join();
}

}  // namespace
}  // namespace torchps
