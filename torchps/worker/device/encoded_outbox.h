#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "torchps/client/pending_push.h"
#include "torchps/common/block_map.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/device/device_link.h"
#include "torchps/worker/device/final_shares.h"
#include "torchps/worker/device/gradient_outbox.h"
#include "torchps/worker/kernels/kernel_shapes.h"

namespace torchps {

// Layout of a vector of floats with one record for each trained block: the GradientVerdict
// (torchps/worker/kernels/kernel_shapes.h) followed by the encoded bytes. The device fills the
// records, which are then copied to the host. They are in the order of the blocks, so one copy
// transfers neighbouring blocks.
//
// Immutable, so thread-safe.
class EncodedRecords {
 public:
  // REQUIRES: `encoding` is normalized.
  EncodedRecords(const BlockMap& map, const EncodingSpec& encoding);

  EncodingSpec::Kind encoding() const { return encoding_; }
  double fraction() const { return fraction_; }
  // Returns the size of all records, in floats.
  int64_t size() const { return begins_.back(); }
  // Returns the range of the records of a run of trained blocks, in floats.
  ElementRun Of(BlockRun blocks) const { return {begins_[blocks.begin], begins_[blocks.end]}; }

  // The verdict and the bytes of one record. `record` must be aligned for doubles.
  template <typename Float>
  static auto* GetVerdict(Float* record) {
    return reinterpret_cast<Like<Float, GradientVerdict>*>(record);
  }
  template <typename Float>
  static auto* GetBytes(Float* record) {
    return reinterpret_cast<Like<Float, uint8_t>*>(record + kVerdictFloats);
  }

  int64_t begin(BlockId block) const { return begins_[block]; }
  size_t bytes(BlockId block) const { return bytes_[block]; }

 private:
  // Const if Float is const.
  template <typename Float, typename Type>
  using Like = std::conditional_t<std::is_const_v<Float>, const Type, Type>;

  static constexpr int64_t kVerdictFloats = sizeof(GradientVerdict) / sizeof(float);

  const EncodingSpec::Kind encoding_;
  const double fraction_;
  // By trained block: where the record begins, in floats. The last element is the end of all
  // records.
  std::vector<int64_t> begins_ = {0};
  std::vector<size_t> bytes_;
};

// Encodes gradient blocks on the device, with error feedback. The result equals, bit for bit, the
// result of ErrorFeedback (torchps/client/error_feedback.h) on the host. The residual stays on the
// device.
//
// Each call queues device work on the calling thread's current stream and returns without waiting.
// Calls must not overlap. Any call may throw c10::Error.
class BlockEncoder {
 public:
  virtual ~BlockEncoder() = default;

  virtual const EncodedRecords& records() const = 0;
  // Returns the memory of all records, on the device.
  virtual absl::Span<const float> memory() const = 0;

  // Adds the block's gradient to the residual and writes the encoded sum into the block's record.
  // If `looks` is true, the encoder first checks the gradient: a gradient that is not finite
  // changes neither the residual nor the bytes, and the record's verdict reports it. If `looks` is
  // false, the caller knows that the gradient is finite, and the verdict is undefined. Elements in
  // `absent`, counted from the start of the block, are sent as zero and keep the residual.
  virtual absl::Status Encode(BlockId block, bool looks, absl::Span<const ElementRun> absent) = 0;
  // Adds the decoded bytes of the block's record back to the residual, because no server applied
  // them. REQUIRES: Encode() filled the record.
  virtual absl::Status TakeBack(BlockId block) = 0;
};

// Outbox for gradients that the device encodes. The encoded bytes are copied to the host (down),
// and the push sends them (EncodedBlocks in torchps/client/pending_push.h).
//
//    compute   | backward t                    | forward t + 1
//    down      |        encode and copy b9, b8 ..  averaged
//    push      |  .. t - 1 |   sends t ..
//
// Until it ends, the previous push may return bytes to a block's residual (TakeBack()). So a step
// is encoded only after Open(), and blocks that are final earlier wait until then. The copies are
// small, and no push reads the records while they change. So one set of records on the device and
// one on the host are enough.
//
// Finish() encodes the blocks that BlockFinal() did not report, without calling `tell` for them.
//
// Thread-safe as Outbox and EncodedBlocks specify. Borrows everything in Options until the link is
// destroyed.
class EncodedOutbox final : public Outbox, public EncodedBlocks {
 public:
  struct Options {
    DeviceLink* link = nullptr;
    const BlockMap* block_map = nullptr;
    BlockEncoder* encoder = nullptr;
    // Averaged elements on the device.
    absl::Span<const float> averaged;
    // Host copies of the encoder's memory(), aligned for doubles, and of the averaged elements.
    absl::Span<float> host_records;
    absl::Span<float> host_averaged;
    // If true, each block is checked before it is encoded. If false, the worker checks whole
    // gradients, and drops a gradient that is not finite.
    bool looks = true;
    int64_t least_copy_bytes = CopyShares::kLeastBytes;
  };

  explicit EncodedOutbox(const Options& options);
  ~EncodedOutbox() override;

  // Returns the host's averaged elements. Valid after Finish().
  absl::Span<const float> averaged() const { return options_.host_averaged; }

  void BeginStep() override ABSL_LOCKS_EXCLUDED(mutex_);
  void BlockFinal(BlockId block) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Open(OnBlock tell) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Drop() override ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the step, after the caller queued all work on the device. `absent` names the trained
  // elements without a gradient; these elements must not be in blocks that BlockFinal() reported.
  // Blocks until the host receives the step; `tell` is not called afterwards. Returns the link's
  // first error; the Finish() of each later step returns it again. REQUIRES: Open().
  absl::Status Finish(const ElementRuns& absent) ABSL_LOCKS_EXCLUDED(mutex_);

  EncodingSpec::Kind encoding() const override;
  bool IsFinite(BlockId block) const override;
  absl::Span<const uint8_t> GetBytes(BlockId block) const override;
  void TakeBack(BlockId block) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Final blocks, and the mark at which the device will have computed them.
  struct Final {
    BlockRun blocks;
    DeviceLink::Mark computed;
  };

  // Encodes the blocks and copies them down.
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
  OnBlock tell_ ABSL_GUARDED_BY(mutex_);
  FinalShares final_ ABSL_GUARDED_BY(mutex_){options_.block_map, &shares_};
  // Blocks that became final before Open().
  std::vector<Final> waiting_ ABSL_GUARDED_BY(mutex_);
  // By trained block: true if the record of the current push is filled and was not taken back.
  std::vector<bool> is_sent_ ABSL_GUARDED_BY(mutex_);
  // Blocks of the current push whose records return to the residual before the next encoding.
  std::vector<BlockId> taken_back_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
