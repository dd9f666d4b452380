// Tests the kernels on a GPU and measures their speed.

#include "torchps/worker/kernels/gradient_kernels.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gpu.h"
#include "tests/worker/kernels/kernel_contract.h"
#include "torch/cuda.h"
#include "torch/types.h"
#include "torchps/worker/kernels/nvrtc.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

// Runs the kernels on a GPU, in torch's memory.
class GpuRig final : public KernelRig {
 public:
  explicit GpuRig(GradientKernels* kernels) : kernels_(kernels) {}
  ~GpuRig() override { torch::cuda::synchronize(); }

  GradientKernels& kernels() override { return *kernels_; }
  uint8_t* Allocate(size_t bytes) override {
    memory_.push_back(at::empty({static_cast<int64_t>(bytes)},
                                at::TensorOptions().dtype(at::kByte).device(at::kCUDA, 0)));
    return memory_.back().data_ptr<uint8_t>();
  }
  void ToDevice(const void* host, uint8_t* device, size_t bytes) override {
    TensorAt(device, bytes, at::kCUDA).copy_(TensorAt(const_cast<void*>(host), bytes, at::kCPU));
  }
  void FromDevice(const uint8_t* device, void* host, size_t bytes) override {
    torch::cuda::synchronize();
    TensorAt(host, bytes, at::kCPU).copy_(TensorAt(const_cast<uint8_t*>(device), bytes, at::kCUDA));
  }
  bool is_fast() const override { return true; }

 private:
  static at::Tensor TensorAt(void* data, size_t bytes, at::DeviceType type) {
    const at::Device device(type, type == at::kCUDA ? 0 : -1);
    return at::for_blob(data, {static_cast<int64_t>(bytes)})
        .options(at::TensorOptions().dtype(at::kByte).device(device))
        .target_device(device)
        .make_tensor();
  }

  GradientKernels* const kernels_;
  std::vector<at::Tensor> memory_;
};

std::unique_ptr<KernelRig> MakeGpuRig() {
  RequireGpu();
  if (::testing::Test::IsSkipped() || ::testing::Test::HasFatalFailure()) return nullptr;
  // The kernels are compiled once for the whole program. They are never destroyed, because the
  // driver ends before static objects are destroyed.
  static const auto& kernels = *new absl::StatusOr<std::unique_ptr<GradientKernels>>([] {
    at::empty({1}, at::TensorOptions().device(at::kCUDA, 0));  // torch creates the context
    return GradientKernels::Create(/*device=*/0);
  }());
  if (!kernels.ok()) {
    [&] { FAIL() << kernels.status(); }();
    return nullptr;
  }
  return std::make_unique<GpuRig>(kernels->get());
}

INSTANTIATE_TEST_SUITE_P(Gpu, KernelContract, ::testing::Values(&MakeGpuRig));

TEST(GradientKernelsTest, ErrorExplainsAMissingGpu) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "a GPU is here";
  const absl::Status status = GradientKernels::Create(/*device=*/0).status();
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::AnyOf(HasSubstr("no NVIDIA driver is to be found (libcuda.so.1)"),
                               HasSubstr("using the GPU failed: ")));
}

TEST(GradientKernelsTest, NvrtcCompilesTheKernelsForEachGpuKind) {
  for (const auto& [major, minor] : {std::pair(8, 0), std::pair(8, 9), std::pair(9, 0)}) {
    const absl::StatusOr<std::string> binary = CompileKernels(major, minor);
    if (absl::IsUnavailable(binary.status())) GTEST_SKIP() << binary.status().message();
    ASSERT_TRUE(binary.ok()) << binary.status();
    EXPECT_GT(binary->size(), 1000u);
  }
  const absl::Status status = CompileKernels(99, 9).status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("NVRTC does not compile the kernels for sm_999: "));
}

class GradientKernelsOnGpuTest : public GpuTest {};

TEST_F(GradientKernelsOnGpuTest, ReportsKernelSpeed) {
  const std::unique_ptr<KernelRig> rig = MakeGpuRig();
  ASSERT_NE(rig, nullptr);
  GradientKernels& kernels = rig->kernels();
  // Number of elements of a ResNet-18, and a number that exceeds any cache.
  for (const int64_t count : {int64_t{11'700'000}, int64_t{85'000'000}}) {
    const at::Tensor numbers = torch::randn({count}, torch::device(at::Device(at::kCUDA, 0)));
    const at::Tensor rest = torch::zeros_like(numbers);
    const at::Tensor equal = torch::ones_like(numbers);
    const auto* const gradient = numbers.data_ptr<float>();
    auto* const residual = rest.data_ptr<float>();
    auto* const scaled = equal.data_ptr<float>();
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    uint8_t* const sent = rig->Allocate(bytes);
    uint8_t* const scan_scratch = rig->Allocate(GradientKernels::ScanScratchBytes(count));
    uint8_t* const top_k_scratch = rig->Allocate(GradientKernels::TopKScratchBytes(count));
    auto* const verdict =
        reinterpret_cast<GradientVerdict*>(rig->Allocate(sizeof(GradientVerdict)));
    // `moved` is the number of bytes per element that memory must read or write.
    const auto measure = [&](const char* what, double moved,
                             const std::function<absl::Status()>& run) {
      constexpr int kRepeats = 20;
      ASSERT_TRUE(run().ok());
      torch::cuda::synchronize();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kRepeats; ++i) ASSERT_TRUE(run().ok());
      torch::cuda::synchronize();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      const double each = taken.count() / kRepeats;
      std::cout << what << " of " << static_cast<double>(count) / 1e6
                << " million elements: " << each * 1e3 << " ms, "
                << moved * static_cast<double>(count) / each / 1e9 << " GB/s\n";
    };
    measure("scan", 4, [&] {
      return kernels.Scan(gradient, count, /*clip_norm=*/1, scan_scratch, verdict, nullptr);
    });
    measure("scale", 8, [&] { return kernels.Scale(scaled, count, verdict, nullptr); });
    measure("bfloat16", 14, [&] {
      return kernels.KeepBfloat16(gradient, residual, count, nullptr, sent, nullptr);
    });
    measure("int8", 13,
            [&] { return kernels.KeepInt8(gradient, residual, count, nullptr, sent, nullptr); });
    // The kernels read the gradient once and the sums five times, and write the sums once, of 4
    // bytes each.
    measure("top-k of a hundredth", 28, [&] {
      return kernels.KeepTopK(gradient, residual, count, count / 100, nullptr, top_k_scratch, sent,
                              nullptr);
    });
    // All elements fall into one bin of the histogram, as in a gradient that is mostly zero.
    rest.zero_();
    equal.fill_(1.0);
    measure("top-k of equal numbers", 28, [&] {
      return kernels.KeepTopK(scaled, residual, count, count / 100, nullptr, top_k_scratch, sent,
                              nullptr);
    });
  }
}

}  // namespace
}  // namespace torchps
