#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/worker/device/fake_link.h"
#include "worker/device/gradient_outbox.h"

namespace torchps {

// Where a slot under a nemesis computes its gradients, apart from the host: a block is copied down
// as late as its push asks for it, and the next step is computed and copied down while a push may
// still have to send its blocks again. At some time its link fails, for good.
//
// Not thread-safe. Borrows the job.
class NemesisDevice {
 public:
  // Of the `incarnation`-th process of `slot`.
  NemesisDevice(const NemesisJob* job, SlotId slot, Incarnation incarnation, uint64_t seed);
  ~NemesisDevice();
  NemesisDevice(const NemesisDevice&) = delete;
  NemesisDevice& operator=(const NemesisDevice&) = delete;

  // What comes now is the push of `step`. What was computed ahead under another name comes to
  // nothing. REQUIRES: the push of the step before has ended.
  void BeginPush(Step step);
  // What the step's push sends of `block`, once the host has it; the same each time, until the next
  // BeginPush(). INTERNAL: the link has failed.
  absl::StatusOr<absl::Span<const float>> Block(BlockId block);

  bool has_failed() const { return has_failed_; }

 private:
  // Gives the device the gradient of `step` to compute, and its blocks to copy.
  void Compute(Step step);

  const NemesisJob& job_;
  const SlotId slot_;
  uint64_t random_;
  bool has_failed_ = false;
  std::vector<float> gradients_;  // the device's
  std::array<std::vector<float>, 2> buffers_;
  FakeLink link_;
  GradientOutbox outbox_;
  // Of the step that is pushed.
  absl::Span<const float> pushed_;
  std::vector<bool> is_there_;   // on the host
  std::vector<bool> was_asked_;  // for
  bool is_ahead_ = false;
  Step computed_ = 0;  // the last one that the device was given; 0: none
};

}  // namespace torchps
