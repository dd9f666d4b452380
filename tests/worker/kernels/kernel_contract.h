#pragma once

#include <cstddef>
#include <memory>

#include "gtest/gtest.h"
#include "worker/kernels/gradient_kernels.h"

namespace torchps {

// A device that runs the kernels, and its memory, which it keeps until it ends.
class KernelRig {
 public:
  virtual ~KernelRig() = default;
  virtual GradientKernels& kernels() = 0;
  // Aligned for doubles.
  virtual uint8_t* Allocate(size_t bytes) = 0;
  virtual void ToDevice(const void* host, uint8_t* device, size_t bytes) = 0;
  // Waits for all kernels.
  virtual void FromDevice(const uint8_t* device, void* host, size_t bytes) = 0;
  // Whether millions of elements are worth a test's time.
  virtual bool is_fast() const = 0;
};

// Makes the device of a test, or null if it has skipped or failed the test.
using MakeRig = std::unique_ptr<KernelRig> (*)();

// What every device's kernels do: the same bits as the host's functions. Instantiated for each
// device in a test of its own.
class KernelContract : public ::testing::TestWithParam<MakeRig> {
 protected:
  void SetUp() override { rig_ = GetParam()(); }

  std::unique_ptr<KernelRig> rig_;
};

}  // namespace torchps
