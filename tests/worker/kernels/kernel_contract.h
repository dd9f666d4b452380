#pragma once

#include <cstddef>
#include <memory>

#include "gtest/gtest.h"
#include "torchps/worker/kernels/gradient_kernels.h"

namespace torchps {

// Runs the kernels on a device. Owns the allocated memory until destruction.
class KernelRig {
 public:
  virtual ~KernelRig() = default;
  virtual GradientKernels& kernels() = 0;
  // Returns memory aligned for doubles.
  virtual uint8_t* Allocate(size_t bytes) = 0;
  virtual void ToDevice(const void* host, uint8_t* device, size_t bytes) = 0;
  // Waits for pending kernels, then copies.
  virtual void FromDevice(const uint8_t* device, void* host, size_t bytes) = 0;
  // Returns true if the device is fast enough to test millions of elements.
  virtual bool is_fast() const = 0;
};

// Creates the device of a test. Returns null after skipping or failing the test.
using MakeRig = std::unique_ptr<KernelRig> (*)();

// Tests that the kernels compute the same bits as the host's functions. Each device's test
// instantiates this suite.
class KernelContract : public ::testing::TestWithParam<MakeRig> {
 protected:
  void SetUp() override { rig_ = GetParam()(); }

  std::unique_ptr<KernelRig> rig_;
};

}  // namespace torchps
