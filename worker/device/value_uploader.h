#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/mutex.h"
#include "common/types.h"
#include "worker/device/device_link.h"
#include "worker/device/final_shares.h"

namespace torchps {

// Copies pulled values from the host to the device. Each block is copied up when it arrives, into a
// staging vector, while the device computes with the first vector. TakeOver() copies within the
// device, after the last copy up. So the values that forward() reads keep their address, and the
// worker does not wait.
//
//   pull      |   lands b3 b0 b2 ..      |
//   up        |         b3 b0 b2 ..      |
//   compute   | backward t                 | take over | forward t + 1
//
//   Begin() Landed()... TakeOver() Begin() ...
//
// If a repeated call delivers a block again, the block is copied again. TakeOver() keeps the old
// values of blocks that did not arrive. Dropping a pull leaves the values unchanged.
//
// A single thread must call Begin() and TakeOver(). Any thread may call Landed() between them.
// Borrows everything.
class ValueUploader {
 public:
  struct Options {
    DeviceLink* link = nullptr;
    const BlockMap* block_map = nullptr;
    // Device memory, each as long as the layout: the destination of copies, and the vector used for
    // computing.
    absl::Span<float> staging;
    absl::Span<float> values;
    int64_t least_copy_bytes = CopyShares::kLeastBytes;
  };

  explicit ValueUploader(const Options& options);
  ValueUploader(const ValueUploader&) = delete;
  ValueUploader& operator=(const ValueUploader&) = delete;

  // Prepares a pull into `host`, which must be as long as the layout. Blocks until the device
  // finishes reading the previous pull, so that the caller may overwrite it.
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
  // After this mark, queued computing no longer reads `staging`, until the next TakeOver().
  bool has_begun_ ABSL_GUARDED_BY(mutex_) = false;
  DeviceLink::Mark is_free_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
