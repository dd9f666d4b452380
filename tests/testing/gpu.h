#pragma once

#include <string>

#include "gtest/gtest.h"
#include "torch/types.h"

// Base classes of tests that run on a GPU. Without a usable GPU the tests are skipped. If
// TORCHPS_REQUIRE_GPU=1 is set, they fail instead, because on a machine that should contain a GPU a
// skip would look like a success.

namespace torchps {

// Skips or fails the current test if a GPU is not usable. Call it from SetUp().
void RequireGpu();

// Base of tests that need a GPU.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override { RequireGpu(); }
};

// Base of tests that run once per kind of device. Instantiate with
// INSTANTIATE_TEST_SUITE_P(Devices, SUITE, EachDevice(), DeviceName).
class DeviceTestBase : public ::testing::TestWithParam<torch::DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == torch::kCUDA) RequireGpu();
  }
  torch::Device device() const { return GetParam(); }
};

inline auto EachDevice() { return ::testing::Values(torch::kCPU, torch::kCUDA); }
inline std::string DeviceName(const ::testing::TestParamInfo<torch::DeviceType>& info) {
  return info.param == torch::kCUDA ? "Gpu" : "Cpu";
}

}  // namespace torchps
