#pragma once

#include <cstdint>
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

// Copies pulled values from the host to the device (up). Each block is copied into a staging vector
// when it arrives, while the device computes with another vector, `values`. TakeOver() copies from
// the staging vector to `values`, after the last copy up. So the values that forward() reads keep
// their address, and the worker does not wait.
//
//   pull      |   lands b3 b0 b2 ..      |
//   up        |         b3 b0 b2 ..      |
//   compute   | backward t                 | take over | forward t + 1
//
//   Begin() Landed()... TakeOver() Begin() ...
//
// If a retry of the pull delivers a block again, the block is copied again. TakeOver() keeps the
// old values of blocks that did not arrive. A pull without TakeOver() leaves the values unchanged.
//
// A single thread must call Begin() and TakeOver(). Any thread may call Landed() between them.
// Borrows everything.
class ValueUploader {
 public:
  struct Options {
    DeviceLink* link = nullptr;
    const BlockMap* block_map = nullptr;
    // Device memory. Both vectors hold all elements of the layout: `staging` receives copies, and
    // the device computes with `values`.
    absl::Span<float> staging;
    absl::Span<float> values;
    int64_t least_copy_bytes = CopyShares::kLeastBytes;
  };

  explicit ValueUploader(const Options& options);
  ValueUploader(const ValueUploader&) = delete;
  ValueUploader& operator=(const ValueUploader&) = delete;

  // Prepares a pull into `host`, which must hold all elements of the layout. Blocks until the
  // copies of the previous pull have ended, so that the caller may overwrite their source.
  absl::Status Begin(absl::Span<const float> host) ABSL_LOCKS_EXCLUDED(mutex_);
  // Reports that `block` arrived. The block must not change until it arrives again or until the
  // next Begin().
  void Landed(BlockId block) ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes later computing use the blocks that arrived since Begin(). Returns the link's first
  // error, as do all later calls.
  absl::Status TakeOver() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the destination of a pull that began but was not taken over; null if there is none.
  const float* host() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status CopyUp(BlockRun blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const CopyShares shares_;

  mutable Mutex mutex_;
  absl::Span<const float> host_ ABSL_GUARDED_BY(mutex_);
  // By block: true if it arrived; true if it arrived since the last copy up.
  std::vector<bool> has_landed_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> is_newer_ ABSL_GUARDED_BY(mutex_);
  // By share: number of blocks that have not arrived.
  std::vector<int> missing_ ABSL_GUARDED_BY(mutex_);
  // True after the first Begin().
  bool has_begun_ ABSL_GUARDED_BY(mutex_) = false;
  // After this mark, the device no longer reads `staging`, until the next TakeOver().
  DeviceLink::Mark is_free_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
