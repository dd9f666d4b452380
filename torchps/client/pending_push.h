#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/client/call_loop.h"
#include "torchps/client/error_feedback.h"
#include "torchps/client/remote_server.h"
#include "torchps/client/rollback_accounting.h"
#include "torchps/client/worker_momentum.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/stop_latch.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/transport/push_segments.h"

namespace torchps {

// Provides the trained blocks of a push in encoded form, for example from a GPU, which then copies
// fewer bytes to the host. Takes the place of the gradient's floats and of ErrorFeedback, and
// provides the bytes that ErrorFeedback would provide. The implementation keeps the encoding error
// and adds it to the next gradient.
//
// Thread-safe. The functions describe the current push. They may be called for a block from the
// time that it is ready until the push ends. The bytes do not change during that time, so a
// repeated push sends the same bytes.
class EncodedBlocks {
 public:
  virtual ~EncodedBlocks() = default;

  virtual EncodingSpec::Kind encoding() const = 0;
  // True if the block's gradient is finite. If it is not, GetBytes() must not be called, and the
  // kept encoding error is unchanged.
  virtual bool IsFinite(BlockId block) const = 0;
  // Returns the block's encoded bytes. Absent elements (PendingPush::AllReady) are zero in them.
  virtual absl::Span<const uint8_t> GetBytes(BlockId block) const = 0;
  // Adds the block's sent values back to the kept encoding error, because the server refused the
  // block in this step. Repeated calls change nothing. Ignores blocks that were not encoded. The
  // implementation may do the work later.
  virtual void TakeBack(BlockId block) = 0;
};

// Result of a push, summed over the blocks on all servers.
struct PushResult {
  VerdictCounts verdicts;
  // Maximum over the blocks.
  int64_t max_lag = 0;
  // True if all blocks were non-finite. Then the client sent nothing, and the step number may be
  // reused.
  bool skipped = false;
};

// Represents a push in progress. Sends blocks in the order in which they become ready, on one
// stream per server, while the caller prepares the next blocks.
//
// Withholds non-finite blocks: the servers count them as pushed but do not change the values. Sends
// nothing before the first finite block, so a step without finite blocks leaves no trace. For this,
// a block with only absent elements is neither finite nor non-finite.
//
// Thread-safe, except Finish(). Borrows the elements during this object's lifetime. The destructor
// abandons an unfinished push. Blocks that were applied remain applied, and the step number must
// not be reused.
class PendingPush {
 public:
  // All borrowed.
  struct Options {
    CallLoop* loop = nullptr;
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
    const BlockMap* block_map = nullptr;
    // Records the applied updates.
    RollbackAccounting* accounting = nullptr;
    // The servers that own at least one block.
    std::vector<RemoteServer*> servers;
    SlotId slot = 0;
    Incarnation incarnation = 0;
    Step step = 0;
    // Number of samples behind the gradient.
    int64_t weight = 0;
    // See PushFrame.share.
    int64_t share = 0;
    // The part of the job's samples assigned before these samples, in units of 2^-32.
    uint32_t progress = 0;
    // By block: the version that the gradient is computed on.
    std::vector<Version> base_versions;
    // Memory that servers on this machine can read. Used if `trained` is inside it. Null: not used.
    PushSegment* segment = nullptr;
    // All trained and all averaged elements. A block's elements must not change after the block is
    // ready.
    absl::Span<const float> trained;
    absl::Span<const float> averaged;
    // Applies the worker momentum to each block when it becomes ready. Null if the job does not use
    // worker momentum. If set, `gradients` is the writable view of `trained`, and `computed_on` are
    // the trained values that the gradient was computed on. These values must not change until the
    // push ends.
    WorkerMomentum* momentum = nullptr;
    absl::Span<float> gradients;
    absl::Span<const float> computed_on;
    // Encodes the trained blocks and keeps the encoding error. Null: blocks are sent unencoded.
    ErrorFeedback* error_feedback = nullptr;
    // Provides the trained blocks in encoded form. If set, `trained` is empty, and segment,
    // momentum and error_feedback are null.
    EncodedBlocks* encoded = nullptr;
    // True if blocks must be checked before they are sent. False if they are known to be finite.
    bool check_finite = false;
    // Returns the result of an earlier finite check of a trained block. Called for ready blocks
    // before the push ends. Null: the push checks the elements. Not used for encoded blocks.
    std::function<bool(BlockId)> is_finite;
  };

  explicit PendingPush(Options options);
  ~PendingPush();
  PendingPush(const PendingPush&) = delete;
  PendingPush& operator=(const PendingPush&) = delete;

  // Sets the gradient's weight in the mean of its update, if this is not Options::weight
  // (PushFrame.loss_weight). The elements are a sum over samples, divided by Options::weight. The
  // update multiplies them by Options::weight and divides by the sum of the gradients' weights.
  // REQUIRES: no block is ready yet.
  void SetWeight(double weight);
  // Permits `block` to be sent. REQUIRES: called once per block.
  void BlockReady(BlockId block);
  // Permits all remaining blocks to be sent. Use kSoon if the caller's next call is Finish() on
  // this push or on a pull of the same client. `absent`: trained elements without a gradient. They
  // are zero in the gradient, and the servers do not change them. REQUIRES: no absent element is in
  // a block that BlockReady() reported.
  void AllReady(CallLoop::Urgency urgency = CallLoop::Urgency::kNow, ElementRuns absent = {});

  // Blocks until each server has answered. After that, gRPC holds no references to the elements.
  // Returns ParameterClient's errors. REQUIRES: all blocks are ready.
  absl::StatusOr<PushResult> Finish();

 private:
  class Round;

  // Waits until the round is finished and no references to the elements remain.
  absl::Status Await();

  CallLoop* const loop_;
  const std::shared_ptr<Round> round_;
  bool finished_ = false;
};

}  // namespace torchps
