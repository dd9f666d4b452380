#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/integer_histogram.h"
#include "common/model_layout.h"
#include "common/mutex.h"
#include "grpcpp/support/slice.h"
#include "proto/job.pb.h"
#include "proto/parameter_service.pb.h"
#include "server/store/block.h"
#include "server/store/block_journal.h"
#include "server/store/block_table.h"
#include "server/store/block_updater.h"
#include "server/store/push_policy.h"
#include "server/store/store_snapshot.h"
#include "shm/value_arena.h"
#include "wire/frame_codec.h"

namespace torchps {

// The blocks of one server: the place where values change.
//
// Thread-safe: each block has its own lock, and no call holds two. Invariant: for every (slot,
// incarnation, step) a block is changed exactly once or not at all, since the ledger changes with
// the values.
class ParameterStore {
 public:
  // A block as it was at one moment.
  struct Image {
    grpc::Slice values;
    EncodingSpec::Kind encoding = EncodingSpec::FLOAT32;  // of `values`
    Version version = 0;
    bool unchanged = false;  // no values: the block is at the version that the reader has
  };

  // Of each (slot, incarnation, step, block) once, and of repeats.
  struct Counters {
    VerdictCounts verdicts;
    IntegerHistogram lag;  // of applied blocks
  };

  // Runs under the block's lock before anything is changed; an error refuses the frame.
  using Admission = absl::FunctionRef<absl::Status()>;

  // Holds the blocks that `map` gives to `server`. `updater` and `policy` outlive this object.
  ParameterStore(const ModelLayout& layout, const BlockMap& map, int server,
                 const BlockUpdater* updater, PushPolicy* policy);

  // Stores initial values, until the first gradient; repeating is harmless. INVALID_ARGUMENT: not
  // this server's block, wrong length, not finite, not FLOAT32.
  absl::Status Initialize(const PushHeader& header, const FramePayload& payload,
                          Admission admission);

  // One frame of a push. INVALID_ARGUMENT as for Initialize (gradients may have any encoding, if it
  // is well formed), or from the policy; ABORTED: the block has no values yet, or what `admission`
  // says.
  absl::Status Push(const PushHeader& header, const FramePayload& payload, Admission admission);

  // The verdicts of a finished push on every block, or on those of `part` where that is not empty,
  // to go into an OK reply, counted as acknowledged. Returns whether all blocks here have seen the
  // push: of parts that end at the same time at least one is told so. INVALID_ARGUMENT if one of
  // those has not seen it that it was to bring. ABORTED: a later incarnation has pushed to one of
  // them, which no longer says whether it has.
  absl::StatusOr<bool> Acknowledge(SlotId slot, Incarnation incarnation, Step step,
                                   absl::Span<const BlockId> part, PushReply* reply);

  // A block's values, encoded; an averaged block is always FLOAT32. What goes out as it lies is
  // lent where no other process reads it, until the slice is let go; all else is copied, under the
  // lock. A block at version `have` is not read again, but for version 0, whose values may have
  // been replaced by other initial ones. REQUIRES: `index` < owned(), `encoding` is not TOP_K.
  // ABORTED: no values yet.
  absl::StatusOr<Image> Read(size_t index, EncodingSpec::Kind encoding = EncodingSpec::FLOAT32,
                             Version have = 0);

  // From now on the values lie in shared memory, where workers of this machine read them in place.
  // The same again once that is so. RESOURCE_EXHAUSTED: the kernel gives no such memory, and
  // nothing has changed.
  absl::StatusOr<const SharedSegment*> Share();
  // Whether Share() has succeeded.
  bool shared() const;

  // Copies for checkpoints, and what is brought back before anything is pushed.
  StoreSnapshot& snapshot() { return snapshot_; }

  // Tells `journal` of every change from now on. REQUIRES: nothing was pushed yet.
  void SetJournal(BlockJournal* journal);

  // Tells the policy which slots are live and lets it finish what has become due.
  void SetLive(const std::vector<LiveSlot>& live);

  // Lets the policy finish what has become due on any block.
  void Reconsider();

  // The slot's entry in each block's ledger, in ascending order of blocks.
  std::vector<LedgerEntry> GetEntries(SlotId slot);

  // The highest version that a push of this life has found or left a block at; never falls.
  Version highest_version() const { return highest_version_.load(std::memory_order_relaxed); }

  // How often a block was changed, of all of them together: the sum of their versions.
  int64_t CountChanges() const;

  bool initialized() const { return blocks_.initialized(); }
  // What a frame's payload takes at most.
  int64_t largest_block_bytes() const { return blocks_.largest_block_bytes(); }
  size_t owned() const { return blocks_.size(); }
  BlockId block_id(size_t index) const { return blocks_[index].range.id; }
  const BlockRange& range(size_t index) const { return blocks_[index].range; }
  // Arrays of the optimizer that the block has.
  int slots(size_t index) const;
  uint64_t state_bytes() const { return blocks_.state_bytes(); }

  Counters counters() const;
  // Fills versions and, where asked, the ledger.
  void Describe(bool include_ledger, ServerStatus* status);

 private:
  // The block that the frame names, with a payload for its length that may be applied: well formed,
  // all finite; or withheld, without one.
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

  // Held before a block's lock.
  mutable Mutex sharing_mutex_;
  // Null until the values are shared.
  std::unique_ptr<const ValueArena> arena_ ABSL_GUARDED_BY(sharing_mutex_);

  mutable Mutex mutex_;
  Counters counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
