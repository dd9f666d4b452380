#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "torch/types.h"
#include "torchps/common/block_map.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/cuda/device_scan.h"
#include "torchps/worker/device/device_link.h"
#include "torchps/worker/device/encoded_outbox.h"
#include "torchps/worker/feed/batch_loader.h"

namespace torchps {

// Makes the objects that copy, check and encode on a worker's device. Learner calls MakeUploader(),
// DeviceWork (torchps/worker/slot/device_work.h) calls the other Make functions, and
// MakePlacement() (torchps/worker/slot/worker_options.h) calls separates_cpu(). Workers use
// GpuFactory; tests use host memory in place of a device (tests/worker/cuda/fake_device.h).
//
// An error means that the device lacks a capability: the caller logs the error, and the host does
// the work. Thread-compatible: the worker's thread calls it. The results borrow `gradients`'
// memory.
class DeviceFactory {
 public:
  virtual ~DeviceFactory() = default;

  // Returns true if a model on the CPU must be kept apart from the host's vectors and copied, as on
  // a GPU. For tests.
  virtual bool separates_cpu() const = 0;
  // Makes the link between the host and `device`, which holds the model.
  virtual absl::StatusOr<std::unique_ptr<DeviceLink>> MakeLink(torch::Device device) const = 0;
  // Makes the uploader of batches to `device`. Returns null if batches need no upload.
  virtual absl::StatusOr<std::unique_ptr<BatchUploader>> MakeUploader(
      torch::Device device) const = 0;
  // Makes the scan that checks and clips the whole vector `gradients`.
  virtual absl::StatusOr<std::unique_ptr<DeviceScan>> MakeScan(
      const torch::Tensor& gradients) const = 0;
  // Makes the check that each block is finite. Returns null if the host must check blocks.
  virtual absl::StatusOr<std::unique_ptr<FiniteCheck>> MakeFiniteCheck(
      const torch::Tensor& gradients, const BlockMap& block_map) const = 0;
  // Makes the encoder of the gradient's blocks. REQUIRES: `encoding` is normalized and not FLOAT32.
  virtual absl::StatusOr<std::unique_ptr<BlockEncoder>> MakeEncoder(
      const torch::Tensor& gradients, const BlockMap& block_map,
      const EncodingSpec& encoding) const = 0;
};

// Makes the objects for GPUs. A model on the CPU is in the host's vectors and does not need them.
// Stateless.
class GpuFactory : public DeviceFactory {
 public:
  bool separates_cpu() const override { return false; }
  absl::StatusOr<std::unique_ptr<DeviceLink>> MakeLink(torch::Device device) const override;
  absl::StatusOr<std::unique_ptr<BatchUploader>> MakeUploader(torch::Device device) const override;
  absl::StatusOr<std::unique_ptr<DeviceScan>> MakeScan(
      const torch::Tensor& gradients) const override;
  absl::StatusOr<std::unique_ptr<FiniteCheck>> MakeFiniteCheck(
      const torch::Tensor& gradients, const BlockMap& block_map) const override;
  absl::StatusOr<std::unique_ptr<BlockEncoder>> MakeEncoder(
      const torch::Tensor& gradients, const BlockMap& block_map,
      const EncodingSpec& encoding) const override;

  // Returns the instance that workers use.
  static const GpuFactory* Get();
};

}  // namespace torchps
