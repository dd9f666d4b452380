#pragma once

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

namespace torchps {

// A pull's way from the host to the device: each block goes up as it lands, into a second vector on
// the device, while that computes on the first. Taking over is a copy within the device, among what
// it computes and behind the last copy up: so the values that forward() reads never move, and
// nobody waits.
//
//   pull      |   lands b3 b0 b2 ..      |
//   up        |         b3 b0 b2 ..      |
//   compute   | backward t                 | take over | forward t + 1
//
//   Begin() Landed()... TakeOver() Begin() ...
//
// A block that lands again, since its call was repeated, goes up again. What has not landed keeps
// its values when the others are taken over. A pull that is dropped leaves no trace.
//
// One thread calls Begin() and TakeOver(), any one Landed() between them. Borrows everything.
class ValueUploader {
 public:
  struct Options {
    DeviceLink* link = nullptr;
    const BlockMap* block_map = nullptr;
    // The device's, each as long as the layout: what blocks go up into, and what is computed with.
    absl::Span<float> staging;
    absl::Span<float> values;
    int64_t least_copy_bytes = CopyShares::kLeastBytes;
  };

  explicit ValueUploader(const Options& options);
  ValueUploader(const ValueUploader&) = delete;
  ValueUploader& operator=(const ValueUploader&) = delete;

  // A pull into `host`, as long as the layout, is about to begin. Waits until the device has read
  // what the last one has brought, so that it may be written over.
  absl::Status Begin(absl::Span<const float> host) ABSL_LOCKS_EXCLUDED(mutex_);
  // `block` is there, and stays as it is until it lands again or the next Begin().
  void Landed(BlockId block) ABSL_LOCKS_EXCLUDED(mutex_);
  // What the device is given to compute from now on finds what has landed since Begin(). An error
  // is the first one of the link's; it stays.
  absl::Status TakeOver() ABSL_LOCKS_EXCLUDED(mutex_);

  // Where the pull that has begun, and was not taken over yet, lands; null: there is none.
  const float* host() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status CopyUp(BlockRun blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const CopyShares shares_;

  mutable Mutex mutex_;
  absl::Span<const float> host_ ABSL_GUARDED_BY(mutex_);
  // By block: it has landed; since it last went up.
  std::vector<bool> has_landed_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> is_newer_ ABSL_GUARDED_BY(mutex_);
  // By share: blocks that have not landed.
  std::vector<int> missing_ ABSL_GUARDED_BY(mutex_);
  // After it nothing that is computed reads `staging`, until it is taken over the next time.
  bool has_begun_ ABSL_GUARDED_BY(mutex_) = false;
  DeviceLink::Mark is_free_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
