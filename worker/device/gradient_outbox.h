#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "worker/device/copy_shares.h"
#include "worker/device/device_link.h"
#include "worker/device/final_shares.h"
#include "worker/device/finite_check.h"
#include "worker/device/outbox.h"

namespace torchps {

// A step's way from the device to its push: each block of the gradient is copied down as soon as it
// is final there, while the device computes the others, and told once the host has it and the push
// has begun. There are two buffers of the host's, so that a step is copied down while the push of
// the one before still sends the other:
//
//   compute   | backward t              |           | backward t + 1
//   down      |   b9 b8 .. b0           |           |   b9 b8 ..
//   push      |      sends t, from buffer 0 ..........|  | sends t + 1, from buffer 1
//
//   BeginStep() BlockFinal()... Open() BlockFinal()... Finish() BeginStep() ...
//
// What a push is given stays as it is until BeginStep() of the step after the next: a push that is
// repeated sends the same bytes.
//
// Blocks that nobody has called final go down with Finish() and are not told: their owner says that
// all are ready (PendingPush::AllReady).
//
// With a look the device has looked at each trained block before it goes down, and what it found
// comes down behind it. So the push need not read what it sends.
//
// Thread-safe as Outbox says. Borrows everything.
class GradientOutbox final : public Outbox {
 public:
  struct Options {
    DeviceLink* link = nullptr;
    const BlockMap* block_map = nullptr;
    // The device's: the trained elements' gradients, and the averaged elements.
    absl::Span<const float> gradients;
    absl::Span<const float> averaged;
    // The host's: each as long as the layout.
    std::array<absl::Span<float>, 2> buffers;
    // Null: the device looks at nothing.
    FiniteCheck* look = nullptr;
    // The host's copies of its verdicts(), one for each buffer; aligned for doubles.
    std::array<absl::Span<float>, 2> host_verdicts;
    int64_t least_copy_bytes = CopyShares::kLeastBytes;
  };
  explicit GradientOutbox(const Options& options);
  ~GradientOutbox() override;
  GradientOutbox(const GradientOutbox&) = delete;
  GradientOutbox& operator=(const GradientOutbox&) = delete;

  // The host's buffer of the present step: the gradients, and the averaged elements.
  absl::Span<float> gradients() const;
  absl::Span<const float> averaged() const;
  // What the device has found of the present step's blocks, once they are told or the step is
  // finished (FiniteCheck::IsFinite); as gradients() otherwise. Empty without a look.
  absl::Span<const float> verdicts() const { return options_.host_verdicts[current_]; }

  void BeginStep() override ABSL_LOCKS_EXCLUDED(mutex_);
  void BlockFinal(BlockId block) override ABSL_LOCKS_EXCLUDED(mutex_);
  // The push is that of gradients() and averaged().
  void Open(Tell tell) override ABSL_LOCKS_EXCLUDED(mutex_);
  // The device was given all of the step to compute. Waits until the host has all of it; nothing is
  // told after that. The first error of the link's is that of this step and of all later ones.
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
  // Of `buffers`; changed between steps.
  size_t current_ = 0;

  Mutex mutex_;
  bool in_step_ ABSL_GUARDED_BY(mutex_) = false;
  // The step's push has begun, and so has the buffer.
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
  Tell tell_ ABSL_GUARDED_BY(mutex_);
  FinalShares final_ ABSL_GUARDED_BY(mutex_){options_.block_map, &shares_};
  // The host has them, and they were not told.
  std::vector<BlockRun> held_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
