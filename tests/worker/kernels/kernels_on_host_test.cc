// Runs the GPU kernels on the host. So their logic can be tested without a GPU, and sanitizers can
// check them.

#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/kernels/host_launcher.h"
#include "tests/worker/kernels/kernel_contract.h"

namespace torchps {
namespace {

class HostRig final : public KernelRig {
 public:
  GradientKernels& kernels() override { return kernels_; }
  uint8_t* Allocate(size_t bytes) override {
    memory_.push_back(std::make_unique<uint8_t[]>(bytes));
    return memory_.back().get();
  }
  void ToDevice(const void* host, uint8_t* device, size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void FromDevice(const uint8_t* device, void* host, size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  bool is_fast() const override { return false; }

 private:
  GradientKernels kernels_{MakeHostLauncher()};
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
};

std::unique_ptr<KernelRig> MakeHostRig() { return std::make_unique<HostRig>(); }

INSTANTIATE_TEST_SUITE_P(Host, KernelContract, ::testing::Values(&MakeHostRig));

}  // namespace
}  // namespace torchps
