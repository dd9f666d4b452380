#include "torchps/worker/cuda/device_scan.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gpu.h"
#include "tests/worker/kernels/host_launcher.h"
#include "torch/cuda.h"
#include "torch/types.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kElements = 5000;

// On the CPU, the kernels run on the host.
class DeviceScanTest : public DeviceTestBase {
 protected:
  void SetUp() override {
    DeviceTestBase::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (device().is_cpu()) {
      scan_ = std::make_unique<DeviceScan>(std::make_unique<GradientKernels>(MakeHostLauncher()),
                                           device(), kElements, [] { return nullptr; });
      return;
    }
    absl::StatusOr<std::unique_ptr<DeviceScan>> scan =
        DeviceScan::Create(torch::Device(torch::kCUDA, 0), kElements);
    ASSERT_TRUE(scan.ok()) << scan.status();
    scan_ = *std::move(scan);
  }

  std::unique_ptr<DeviceScan> scan_;
};

absl::Span<float> GetSpan(const torch::Tensor& host) {
  return absl::MakeSpan(host.data_ptr<float>(), host.numel());
}

TEST_P(DeviceScanTest, MatchesTheHostsNormAndClippingBits) {
  torch::manual_seed(1);
  for (const double clip_norm : {0.0, 0.5, 1e6}) {
    const torch::Tensor expected = torch::randn({kElements});
    const torch::Tensor gradients = expected.clone().to(device());
    const GradientScan scan = ScanGradient(GetSpan(expected));
    ClipGradient(GetSpan(expected), scan.norm, clip_norm);
    const absl::StatusOr<GradientScan> found = scan_->ScanAndClip(gradients, clip_norm);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found->finite);
    EXPECT_EQ(found->norm, scan.norm) << "to the last bit";
    EXPECT_TRUE(gradients.to(torch::kCPU).equal(expected)) << "clipped to " << clip_norm;
  }
}

TEST_P(DeviceScanTest, LeavesANonFiniteGradientUnchanged) {
  torch::Tensor expected = torch::ones({kElements});
  expected[kElements - 1] = std::numeric_limits<float>::infinity();
  const torch::Tensor gradients = expected.clone().to(device());
  const absl::StatusOr<GradientScan> found = scan_->ScanAndClip(gradients, /*clip_norm=*/0.5);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->finite);
  EXPECT_TRUE(gradients.to(torch::kCPU).equal(expected));
}

// The scan runs after earlier work on the thread's stream and before later work.
TEST_P(DeviceScanTest, RunsInStreamOrder) {
  const torch::Tensor gradients = torch::zeros({kElements}, torch::device(device()));
  const int steps = device().is_cpu() ? 5 : 200;
  for (int step = 1; step <= steps; ++step) {
    gradients.fill_(static_cast<double>(step));
    const absl::StatusOr<GradientScan> found = scan_->ScanAndClip(gradients, /*clip_norm=*/1);
    const torch::Tensor clipped = gradients * 2;
    gradients.fill_(-1.0);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_NEAR(found->norm, step * std::sqrt(kElements), 1e-6 * step);
    EXPECT_NEAR(clipped.norm().item<double>(), 2, 1e-4) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceScanTest, EachDevice(), DeviceName);

TEST(DeviceScanCreateTest, ErrorExplainsAMissingGpu) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "a GPU is here";
  const absl::Status status =
      DeviceScan::Create(torch::Device(torch::kCUDA, 0), kElements).status();
  EXPECT_THAT(std::string(status.message()),
              ::testing::AnyOf(HasSubstr("does not tell the driver's handle of a stream"),
                               HasSubstr("no NVIDIA driver is to be found"),
                               HasSubstr("using the GPU failed")));
}

}  // namespace
}  // namespace torchps
