#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "torchps/common/block_map.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/worker/device/device_link.h"
#include "torchps/worker/device/final_shares.h"

namespace torchps {

// Carries a step's gradient from the device to the push and reports blocks while the step is
// computed.
//
//    BeginStep() BlockFinal()... Open() BlockFinal()... <the end of the step> BeginStep() ...
//
// Only one thread may call these functions, except BlockFinal(), which any thread may call.
class Outbox {
 public:
  // Called from any thread, at most once for each block of a step. It must not block: it may only
  // post work.
  using OnBlock = std::function<void(BlockId block)>;

  virtual ~Outbox() = default;

  // Begins a step before the device computes the gradients. REQUIRES: the push of the step before
  // the previous step ended, and the previous step was finished or dropped.
  virtual void BeginStep() = 0;
  // Reports that the calling thread queued all device work for the gradient of `block`. Trained
  // blocks only, at most once a step. Ignored outside a step, because a failed backward() may
  // return on one autograd thread while another thread still runs a hook.
  virtual void BlockFinal(BlockId block) = 0;
  // Reports that the previous push has ended and the step's push has begun. Calls `tell` with each
  // block that the push may send, until the step ends.
  virtual void Open(OnBlock tell) = 0;
  // Abandons the step. Waits for pending copies; `tell` is not called afterwards. Does nothing
  // after the step is finished.
  virtual void Drop() = 0;
};

// Copies a step's gradient to the host and reports each block to the push. Each block is copied to
// the host (down) once its share is final (FinalShares), while the device computes the other
// blocks. The block is reported after the host received it and the push began. Two host buffers
// alternate, so that a step is copied down while the previous push still sends the other buffer:
//
//   compute   | backward t              |           | backward t + 1
//   down      |   b9 b8 .. b0           |           |   b9 b8 ..
//   push      |      sends t, from buffer 0 ..........|  | sends t + 1, from buffer 1
//
//   BeginStep() BlockFinal()... Open() BlockFinal()... Finish() BeginStep() ...
//
// Each push buffer stays unchanged until BeginStep() of the step after the next, so a repeated push
// sends the same bytes.
//
// Finish() copies the blocks that BlockFinal() did not report, without calling `tell`: the caller
// then marks all blocks as ready (PendingPush::AllReady).
//
// If there is a FiniteCheck, the device checks each trained block before the copy, and the check's
// verdict is copied after the block. So the push does not need to read the values that it sends.
//
// Thread-safe as Outbox specifies. Borrows everything.
class GradientOutbox final : public Outbox {
 public:
  struct Options {
    DeviceLink* link = nullptr;
    const BlockMap* block_map = nullptr;
    // Device memory: gradients of the trained elements, and averaged elements.
    absl::Span<const float> gradients;
    absl::Span<const float> averaged;
    // Host memory. Each buffer holds all elements of the layout.
    std::array<absl::Span<float>, 2> buffers;
    // If null, the device checks no block.
    FiniteCheck* look = nullptr;
    // Host copies of verdicts(), one for each buffer; aligned for doubles.
    std::array<absl::Span<float>, 2> host_verdicts;
    int64_t least_copy_bytes = CopyShares::kLeastBytes;
  };
  explicit GradientOutbox(const Options& options);
  ~GradientOutbox() override;
  GradientOutbox(const GradientOutbox&) = delete;
  GradientOutbox& operator=(const GradientOutbox&) = delete;

  // Return the current step's host buffer: the gradients and the averaged elements.
  absl::Span<float> gradients() const;
  absl::Span<const float> averaged() const;
  // Returns the verdicts of the current step (FiniteCheck::IsFinite). Valid for reported blocks and
  // after Finish(). Empty without a FiniteCheck.
  absl::Span<const float> verdicts() const { return options_.host_verdicts[current_]; }

  void BeginStep() override ABSL_LOCKS_EXCLUDED(mutex_);
  void BlockFinal(BlockId block) override ABSL_LOCKS_EXCLUDED(mutex_);
  // The push sends the elements of gradients() and averaged().
  void Open(OnBlock tell) override ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the step, after the caller queued all work on the device. Blocks until the host receives
  // the step; `tell` is not called afterwards. Returns the link's first error; the Finish() of each
  // later step returns it again.
  absl::Status Finish() ABSL_LOCKS_EXCLUDED(mutex_);
  void Drop() override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class Told { kOnceDown, kNever };

  void CopyDown(BlockRun blocks, Told told) ABSL_LOCKS_EXCLUDED(mutex_);
  void CopyElementsDown(const DeviceLink::Mark& computed, BlockRun blocks, DeviceLink::Done done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDown(BlockRun blocks, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void Keep(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EndStep() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const CopyShares shares_;
  const int64_t trained_size_;
  // Index into `buffers`; changes between steps.
  size_t current_ = 0;

  Mutex mutex_;
  bool in_step_ ABSL_GUARDED_BY(mutex_) = false;
  // True once the current step's push has begun. The push uses the current buffer.
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
  OnBlock tell_ ABSL_GUARDED_BY(mutex_);
  FinalShares final_ ABSL_GUARDED_BY(mutex_){options_.block_map, &shares_};
  // Blocks received by the host but not reported yet.
  std::vector<BlockRun> held_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
