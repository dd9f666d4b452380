#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/worker/device/fake_link.h"
#include "torchps/common/types.h"
#include "torchps/worker/device/gradient_outbox.h"

namespace torchps {

// Simulates a device that computes a slot's gradients in memory apart from the host. Blocks are
// copied to the host only when the push asks for them. The next step is computed and copied while a
// push may still have to repeat blocks. After some number of operations the link fails permanently.
//
// Not thread-safe. Borrows the job.
class NemesisDevice {
 public:
  // Creates the device of the `incarnation`-th process of `slot`.
  NemesisDevice(const NemesisJob* job, SlotId slot, Incarnation incarnation, uint64_t seed);
  ~NemesisDevice();
  NemesisDevice(const NemesisDevice&) = delete;
  NemesisDevice& operator=(const NemesisDevice&) = delete;

  // Begins the push of `step`. Drops a gradient that was computed ahead for another step. REQUIRES:
  // the previous step's push has ended.
  void BeginPush(Step step);
  // Waits until the host has the step's gradient of `block` and returns it. Returns the same
  // gradient until the next BeginPush(). Returns INTERNAL if the link failed.
  absl::StatusOr<absl::Span<const float>> Block(BlockId block);

  bool has_failed() const { return has_failed_; }

 private:
  // Starts computing the gradient of `step` and copying its blocks.
  void Compute(Step step);

  const NemesisJob& job_;
  const SlotId slot_;
  uint64_t random_;
  bool has_failed_ = false;
  std::vector<float> gradients_;  // device memory
  std::array<std::vector<float>, 2> buffers_;
  FakeLink link_;
  GradientOutbox outbox_;
  // The gradients of the step that is pushed.
  absl::Span<const float> pushed_;
  std::vector<bool> is_there_;   // by block: copied to the host
  std::vector<bool> was_asked_;  // by block: requested by the push
  bool is_ahead_ = false;
  Step computed_ = 0;  // the last step given to the device; 0: none
};

}  // namespace torchps
