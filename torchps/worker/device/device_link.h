#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "torchps/common/clock.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/types.h"
#include "torchps/worker/device/final_shares.h"
#include "torchps/worker/kernels/kernel_shapes.h"

namespace torchps {

// Checks on the device if gradient blocks are finite. The result for a block is a GradientVerdict
// (torchps/worker/kernels/kernel_shapes.h), called the verdict here. It equals the result of
// ScanGradient() (torchps/worker/gradient/gradient_scan.h) on the host.
//
// Each call queues device work on the calling thread's current stream and returns without waiting.
// Calls must not overlap. Any call may throw c10::Error.
class FiniteCheck {
 public:
  virtual ~FiniteCheck() = default;

  // Returns the device memory of the verdicts, as floats: one GradientVerdict for each trained
  // block, in the order of the blocks.
  virtual absl::Span<const float> verdicts() const = 0;
  // Checks a trained block and writes the verdict. INTERNAL: the device failed.
  virtual absl::Status Look(BlockId block) = 0;

  // Returns the range of verdicts() that belongs to a run of trained blocks, in floats.
  static ElementRun GetVerdicts(BlockRun blocks) {
    return {blocks.begin * kVerdictFloats, blocks.end * kVerdictFloats};
  }
  // Returns true if the block is finite. `verdicts` is a copy of verdicts() in host memory, aligned
  // for doubles.
  static bool IsFinite(absl::Span<const float> verdicts, BlockId block) {
    const float* const verdict = verdicts.data() + block * kVerdictFloats;
    return reinterpret_cast<const GradientVerdict*>(verdict)->finite != 0;
  }

  static constexpr int64_t kVerdictFloats = sizeof(GradientVerdict) / sizeof(float);
};

// Copies between host and device memory while the device computes. There are three queues of work:
// computing, copies to the host (down), copies from the host (up). The work in a queue runs in
// sequence. A queue waits for another queue only at a mark.
//
// Spans named `device` are device memory, which the host must not access directly. Host memory is
// pinned if the device is a GPU. Until a copy ends, it may read the source and write the
// destination at any time.
//
// Any operation can fail. The first error of the link ends pending work, and each later operation
// returns this error.
//
// Thread-safe. Borrows all memory until the destructor returns, which waits for pending work.
class DeviceLink {
 public:
  // Marks a point in one of the queues. Null means already reached.
  using Mark = std::shared_ptr<const void>;
  // Called once, on a thread of the link or within the call that received it. It must not block: it
  // may only post work.
  using Done = std::function<void(const absl::Status& status)>;
  using Give = std::function<absl::Status()>;

  virtual ~DeviceLink() = default;

  // Returns a mark after the work that the calling thread queued for computing.
  virtual absl::StatusOr<Mark> AfterCompute() = 0;
  // Returns a mark after all copies up that were queued so far.
  virtual absl::StatusOr<Mark> AfterUps() = 0;
  // Makes later computing of the calling thread begin after `mark`.
  virtual absl::Status ComputeAfter(const Mark& mark) = 0;
  // Queues a copy within the device, in the queue of computing.
  virtual absl::Status CopyInCompute(absl::Span<const float> device_from,
                                     absl::Span<float> device_to) = 0;

  // Runs `done` when `mark` is reached, without blocking any queue. If this returns an error,
  // `done` does not run.
  virtual absl::Status WhenReached(const Mark& mark, Done done) = 0;

  // Queues a copy to the host, which begins after `after`. Runs `done` when the copy has ended.
  // Errors as for WhenReached().
  virtual absl::Status Down(const Mark& after, absl::Span<const float> device,
                            absl::Span<float> host, Done done) = 0;
  // Runs `give`, which queues computing in the queue of the copies down, after `after`. `give` runs
  // once, with this queue as the current stream: within this call or later on a thread of the link.
  // Calls of `give` never overlap. An error of `give` becomes the link's error.
  virtual absl::Status InDowns(const Mark& after, Give give) = 0;
  // Queues a copy from the host, which begins after `after`.
  virtual absl::Status Up(const Mark& after, absl::Span<const float> host,
                          absl::Span<float> device) = 0;

  // Blocks until each Down() so far ended and the `done` callbacks returned.
  virtual void AwaitDowns() = 0;
  // Blocks until each Up() so far ended.
  virtual absl::Status AwaitUps() = 0;

  // Returns the smallest copy worth a separate call, in bytes.
  virtual int64_t least_copy_bytes() const { return CopyShares::kLeastBytes; }
};

// Records the time at which a device finished its queued work. The thread that queues the work
// cannot record it, because it is far ahead of the device.
//
// Thread-safe.
class WorkEnd {
 public:
  // Covers the work that the calling thread queued so far. Borrows the clock until the link is
  // destroyed.
  WorkEnd(DeviceLink* link, const Clock* clock);

  // Returns the time by the clock; nullopt if the work is not finished or the link failed.
  std::optional<absl::Duration> at() const;

 private:
  struct State;

  std::shared_ptr<State> state_;
};

}  // namespace torchps
