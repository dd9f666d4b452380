#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/call_loop.h"
#include "client/encoded_blocks.h"
#include "client/error_feedback.h"
#include "client/remote_server.h"
#include "client/rollback_accounting.h"
#include "client/worker_momentum.h"
#include "common/block_map.h"
#include "common/clock.h"
#include "common/element_runs.h"
#include "common/ids.h"
#include "common/stop_latch.h"
#include "proto/parameter_service.pb.h"
#include "shm/push_segment.h"

namespace torchps {

// What a push led to, summed over its blocks on all servers.
struct PushResult {
  VerdictCounts verdicts;
  // The largest over blocks.
  int64_t max_lag = 0;
  // No block was finite, so nothing was sent and the step's name is free.
  bool skipped = false;
};

// A push under way: its blocks are sent in the order in which they become ready, each server's on a
// stream of its own, while the caller goes on with the next ones.
//
// A block that is not finite is withheld: the servers hear that it counts as pushed and changes
// nothing. As long as no block was finite nothing is sent, so a step that has none leaves no trace.
// A block of which the gradient has nothing at all decides nothing of that.
//
// Thread-safe, but for Finish(). Borrows the elements until it is gone. Its destructor gives up
// what is not finished: blocks that were applied stay so, and the step's name may not be used
// again.
class PendingPush {
 public:
  // All borrowed.
  struct Options {
    CallLoop* loop = nullptr;
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
    const BlockMap* block_map = nullptr;
    // What was applied is entered here.
    RollbackAccounting* accounting = nullptr;
    // Those that own a block.
    std::vector<RemoteServer*> servers;
    SlotId slot = 0;
    Incarnation incarnation = 0;
    Step step = 0;
    // Samples behind the gradient.
    int64_t weight = 0;
    int64_t share = 0;
    // Part of the job's samples that were handed out before these, in 2^-32.
    uint32_t progress = 0;
    // Of each block, what the gradient is computed on.
    std::vector<Version> base_versions;
    // Where servers on this machine read the elements: used if `trained` lies there. Null: nowhere.
    PushSegment* segment = nullptr;
    // All trained elements and all averaged ones; a block's must stay as they are from the moment
    // at which it is ready.
    absl::Span<const float> trained;
    absl::Span<const float> averaged;
    // Makes what is pushed of the gradient as its blocks become ready; null where the servers do
    // all that is done with it. Then `gradients` is `trained`, to be written to, and `computed_on`
    // the trained values that it was computed on, which stay as they are as long.
    WorkerMomentum* momentum = nullptr;
    absl::Span<float> gradients;
    absl::Span<const float> computed_on;
    // Encodes the trained blocks and keeps what that loses; null where they travel as they are.
    ErrorFeedback* error_feedback = nullptr;
    // Trained blocks come encoded from there. Then `trained` is empty, and there is no segment, no
    // momentum and no error feedback. Null: they do not.
    EncodedBlocks* encoded = nullptr;
    // Whether blocks are looked at before they are sent; otherwise they are known to be finite.
    bool check_finite = false;
    // Who has looked at the trained blocks already; asked of a block that is ready, before the push
    // has ended. Null: nobody, so their elements are read. Not asked of what comes encoded.
    std::function<bool(BlockId)> is_finite;
  };

  explicit PendingPush(Options options);
  ~PendingPush();
  PendingPush(const PendingPush&) = delete;
  PendingPush& operator=(const PendingPush&) = delete;

  // The gradient's weight in its update, where that is not Options::weight: elements that the
  // gradient has are the sum by Options::weight, and the update divides by `weight`. REQUIRES: no
  // block is ready yet.
  void SetWeight(double weight);
  // `block` may be sent. REQUIRES: called once per block.
  void BlockReady(BlockId block);
  // All blocks that were not ready yet may be sent; kSoon for a caller that goes on with a
  // Finish(), this one or another one of the same client. `absent`: those of the trained elements
  // that the gradient has nothing for, where it is zero; none lies in a block that was ready. The
  // servers leave them alone.
  void AllReady(CallLoop::Urgency urgency = CallLoop::Urgency::kNow, ElementRuns absent = {});

  // Blocks until every server has answered; gRPC then holds no reference to the elements any more.
  // Errors as ParameterClient's. REQUIRES: every block is ready.
  absl::StatusOr<PushResult> Finish();

 private:
  class Round;

  // Until the round has finished and nothing refers to the elements.
  absl::Status Await();

  CallLoop* const loop_;
  const std::shared_ptr<Round> round_;
  bool finished_ = false;
};

}  // namespace torchps
