#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/worker/device/fake_link.h"
#include "tests/worker/feed/fake_lift.h"
#include "torch/types.h"
#include "torchps/common/block_map.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/device_factory.h"

namespace torchps {

// Makes a worker's CPU act as a device: host memory behind a FakeLink, batches through a FakeLift,
// and the GPU's kernels running on the host. Each part is off until a test sets it. Set the members
// before a worker uses the object.
class FakeDevice : public GpuFactory {
 public:
  FakeDevice() = default;
  explicit FakeDevice(const FakeLink::Options& options) : link(options) {}

  // Options of a link with its own thread, which copies each block separately.
  static FakeLink::Options Link(uint64_t seed, int64_t fail_at = -1) {
    FakeLink::Options options;
    options.seed = seed;
    options.own_thread = true;
    options.fail_at = fail_at;
    options.least_copy_bytes = 1;
    return options;
  }

  // Options of the link, or the error that MakeLink() returns. If nullopt, the model is in the
  // host's vectors.
  std::optional<absl::StatusOr<FakeLink::Options>> link;
  // Options of the uploader. If nullopt, a batch is on the device as soon as it is created.
  std::optional<FakeLift::Options> lift;
  // For each of these three, OK means that the GPU's kernel runs on the host and accesses the
  // "device" memory directly. An error is returned when the worker asks for the object. If nullopt,
  // GpuFactory decides, as on a CPU.
  std::optional<absl::Status> scan;
  std::optional<absl::Status> finite_check;
  std::optional<absl::Status> encoder;

  // Number of objects made so far, and of nonempty copies down by all links.
  int scans() const { return scans_; }
  int finite_checks() const { return finite_checks_; }
  int encoders() const { return encoders_; }
  int64_t downs() const { return downs_; }

  bool separates_cpu() const override { return link.has_value(); }
  absl::StatusOr<std::unique_ptr<DeviceLink>> MakeLink(torch::Device device) const override;
  absl::StatusOr<std::unique_ptr<BatchUploader>> MakeUploader(torch::Device device) const override;
  absl::StatusOr<std::unique_ptr<DeviceScan>> MakeScan(
      const torch::Tensor& gradients) const override;
  absl::StatusOr<std::unique_ptr<FiniteCheck>> MakeFiniteCheck(
      const torch::Tensor& gradients, const BlockMap& block_map) const override;
  absl::StatusOr<std::unique_ptr<BlockEncoder>> MakeEncoder(
      const torch::Tensor& gradients, const BlockMap& block_map,
      const EncodingSpec& encoding) const override;

 private:
  mutable int scans_ = 0;
  mutable int finite_checks_ = 0;
  mutable int encoders_ = 0;
  mutable std::atomic<int64_t> downs_{0};
};

}  // namespace torchps
