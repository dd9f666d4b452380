#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "grpcpp/support/slice.h"
#include "torchps/common/block_map.h"
#include "torchps/common/integer_histogram.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/store/block.h"
#include "torchps/server/store/block_journal.h"
#include "torchps/server/store/block_table.h"
#include "torchps/server/store/block_updater.h"
#include "torchps/server/store/push_policy.h"
#include "torchps/server/store/store_snapshot.h"
#include "torchps/transport/frame_codec.h"
#include "torchps/transport/shared_values.h"

namespace torchps {

// Stores the blocks of one server and applies changes to their values.
//
// Thread-safe: each block contains a lock, and a call never holds two. Invariant: each (slot,
// incarnation, step) changes a block at most once, because the ledger changes together with the
// values.
class ParameterStore {
 public:
  // Snapshot of a block.
  struct Image {
    grpc::Slice values;
    EncodingSpec::Kind encoding = EncodingSpec::FLOAT32;  // encoding of `values`
    Version version = 0;
    bool unchanged = false;  // the reader holds this version; `values` is empty
  };

  // Counts each (slot, incarnation, step, block) once under its verdict, and repeated pushes
  // separately.
  struct Counters {
    VerdictCounts verdicts;
    IntegerHistogram lag;  // lag of applied blocks
  };

  // Called under the block's lock before a change; an error refuses the frame.
  using Admission = absl::FunctionRef<absl::Status()>;

  // Creates the blocks that `map` assigns to `server`. `updater` and `policy` outlive this object.
  ParameterStore(const ModelLayout& layout, const BlockMap& map, int server,
                 const BlockUpdater* updater, PushPolicy* policy);

  // Stores initial values. Ignored after the first gradient; idempotent. INVALID_ARGUMENT: the
  // block is not on this server, or the values have the wrong length, are not finite or not
  // FLOAT32.
  absl::Status Initialize(const PushHeader& header, const FramePayload& payload,
                          Admission admission);

  // Applies one frame of a push. INVALID_ARGUMENT: as Initialize, except that gradients may have
  // any encoding. ABORTED: the block has no values yet. Otherwise errors of `admission` and of
  // PushPolicy::Push.
  absl::Status Push(const PushHeader& header, const FramePayload& payload, Admission admission);

  // Fills `reply` with the verdicts of a finished push on the blocks in `part`, or on each block if
  // `part` is empty, and counts them as acknowledged. Returns true if each block here contains the
  // push; if several parts end at the same time, at least one call returns true. INVALID_ARGUMENT:
  // a block of this part lacks the push. ABORTED: a later incarnation pushed to one of the blocks,
  // so that block's ledger entry no longer covers this push.
  absl::StatusOr<bool> Acknowledge(SlotId slot, Incarnation incarnation, Step step,
                                   absl::Span<const BlockId> part, PushReply* reply);

  // Returns a block's values, encoded; an averaged block is always FLOAT32. Lends the values
  // without a copy if the encoding is FLOAT32 and the values are not in shared memory; otherwise
  // copies them under the lock. Returns `unchanged` if the block is at version `have`. A block at
  // version 0 is always read, because other initial values may have replaced the ones that the
  // reader has.
  // REQUIRES: `index` < owned(), `encoding` is not TOP_K. ABORTED: the block has no values yet.
  absl::StatusOr<Image> Read(size_t index, EncodingSpec::Kind encoding = EncodingSpec::FLOAT32,
                             Version have = 0);

  // Moves the values to shared memory, so that workers on this machine can read them in place.
  // Returns the same segment if called again. RESOURCE_EXHAUSTED: the kernel cannot provide the
  // memory; the values stay unchanged.
  absl::StatusOr<const SharedSegment*> Share();
  // True after Share() succeeded.
  bool shared() const;

  // Copies blocks for checkpoints, and restores blocks before the first push.
  StoreSnapshot& snapshot() { return snapshot_; }

  // Sets the journal that records changes from now on.
  // REQUIRES: no push has arrived.
  void SetJournal(BlockJournal* journal);

  // Passes the live slots to the policy and lets it finish updates that are now due.
  void SetLive(const std::vector<LiveSlot>& live);

  // Lets the policy finish updates that are due on any block.
  void Reconsider();

  // Returns the slot's ledger entry in each block, in ascending order of blocks.
  std::vector<LedgerEntry> GetEntries(SlotId slot);

  // The highest block version that a change in this process has reached. It never falls.
  Version highest_version() const { return highest_version_.load(std::memory_order_relaxed); }

  // Number of changes to the blocks: the sum of their versions.
  int64_t CountChanges() const;

  bool initialized() const { return blocks_.initialized(); }
  // Upper bound for a frame's payload.
  int64_t largest_block_bytes() const { return blocks_.largest_block_bytes(); }
  size_t owned() const { return blocks_.size(); }
  BlockId block_id(size_t index) const { return blocks_[index].range.id; }
  const BlockRange& range(size_t index) const { return blocks_[index].range; }
  // Number of optimizer arrays in the block.
  int slots(size_t index) const;
  uint64_t state_bytes() const { return blocks_.state_bytes(); }

  Counters counters() const;
  // Fills the versions and, if requested, the ledger.
  void Describe(bool include_ledger, ServerStatus* status);

 private:
  // Returns the block that the frame names, after checking that the payload can be applied: well
  // formed, finite and of the right length, or empty if withheld.
  absl::StatusOr<Block*> Find(const PushHeader& header, const FramePayload& payload) const;

  void Count(const PushDecision& decision);
  void NoteVersion(Version version);

  const ModelLayout layout_;
  const BlockMap map_;
  const int server_;
  PushPolicy* const policy_;
  BlockJournal* journal_ = nullptr;
  BlockTable blocks_;
  StoreSnapshot snapshot_;
  std::atomic<Version> highest_version_{0};

  // Acquired before a block's lock.
  mutable Mutex sharing_mutex_;
  // Null until the values are shared.
  std::unique_ptr<const ValueArena> arena_ ABSL_GUARDED_BY(sharing_mutex_);

  mutable Mutex mutex_;
  Counters counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
