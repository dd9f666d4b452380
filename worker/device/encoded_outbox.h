#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/encoded_blocks.h"
#include "common/block_map.h"
#include "common/element_runs.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "worker/device/block_encoder.h"
#include "worker/device/copy_shares.h"
#include "worker/device/device_link.h"
#include "worker/device/final_shares.h"
#include "worker/device/outbox.h"

namespace torchps {

// The outbox of gradients that the device encodes: what is copied down are the encoded bytes, and
// the push is given those (client/encoded_blocks.h).
//
//   compute   | backward t                    | forward t + 1
//   down      |        encode b9, b9, b8 ..       averaged
//   push      |  .. t - 1 |   sends t ..
//
// A block's residual may still get something back as long as the push of the step before is under
// way, so nothing of a step is encoded before Open(). What is final by then waits, and the copies
// are small. So one set of records on each side is enough: no push is under way when they change.
//
// Blocks that nobody has called final are encoded by Finish() and are not told.
//
// Thread-safe as Outbox and EncodedBlocks say. Borrows everything, for as long as the link lives.
class EncodedOutbox final : public Outbox, public EncodedBlocks {
 public:
  struct Options {
    DeviceLink* link = nullptr;
    const BlockMap* block_map = nullptr;
    BlockEncoder* encoder = nullptr;
    // The device's averaged elements.
    absl::Span<const float> averaged;
    // The host's: copies of the encoder's memory(), aligned for doubles, and of those elements.
    absl::Span<float> host_records;
    absl::Span<float> host_averaged;
    // Each block is looked at before it is encoded. Otherwise a gradient that is not finite as a
    // whole is dropped.
    bool looks = true;
    int64_t least_copy_bytes = CopyShares::kLeastBytes;
  };

  explicit EncodedOutbox(const Options& options);
  ~EncodedOutbox() override;

  // The host's averaged elements, once the step is finished.
  absl::Span<const float> averaged() const { return options_.host_averaged; }

  void BeginStep() override ABSL_LOCKS_EXCLUDED(mutex_);
  void BlockFinal(BlockId block) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Open(Tell tell) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Drop() override ABSL_LOCKS_EXCLUDED(mutex_);
  // The device was given all of the step to compute; of its trained elements those are absent, none
  // of them in a block that was final. Waits until the host has all of it; nothing is told after
  // that. The first error of the link's is that of this step and of all later ones. REQUIRES:
  // Open().
  absl::Status Finish(const ElementRuns& absent) ABSL_LOCKS_EXCLUDED(mutex_);

  EncodingSpec::Kind encoding() const override;
  bool IsFinite(BlockId block) const override;
  absl::Span<const uint8_t> GetBytes(BlockId block) const override;
  void TakeBack(BlockId block) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Blocks that are final, and when the device will have them.
  struct Final {
    BlockRun blocks;
    DeviceLink::Mark computed;
  };

  // Encodes the blocks, and copies them down.
  void Send(const Final& final, DeviceLink::Done done, const ElementRuns& absent = {})
      ABSL_LOCKS_EXCLUDED(mutex_);
  void SendEarly(const Final& final) ABSL_LOCKS_EXCLUDED(mutex_);
  DeviceLink::Done KeepsError() ABSL_LOCKS_EXCLUDED(mutex_);
  void Keep(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EndStep() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const CopyShares shares_;

  Mutex mutex_;
  bool in_step_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
  Tell tell_ ABSL_GUARDED_BY(mutex_);
  FinalShares final_ ABSL_GUARDED_BY(mutex_){options_.block_map, &shares_};
  // Before Open().
  std::vector<Final> waiting_ ABSL_GUARDED_BY(mutex_);
  // By trained block, of the present push: its record was filled, and nobody has taken it back.
  std::vector<bool> is_sent_ ABSL_GUARDED_BY(mutex_);
  // Of the present push; goes back before the next one is encoded.
  std::vector<BlockId> taken_back_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
