#pragma once

#include <string>

#include "gtest/gtest.h"
#include "torch/types.h"

// Tests of what runs on a GPU. Where none can be used they are skipped, or fail if the environment
// has TORCHPS_REQUIRE_GPU=1: on a machine that is known to have one a skip would pass for a
// success.

namespace torchps {

// Skips or fails the test that calls it from SetUp().
void RequireGpu();

// Base of tests that need a GPU.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override { RequireGpu(); }
};

// Base of tests that run once on each kind of device. INSTANTIATE_TEST_SUITE_P(Devices, SUITE,
// EachDevice(), DeviceName).
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
