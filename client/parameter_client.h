#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/cached_versions.h"
#include "client/call_loop.h"
#include "client/calls/server_channel.h"
#include "client/encoded_blocks.h"
#include "client/error_feedback.h"
#include "client/fan_out_call.h"
#include "client/pending_pull.h"
#include "client/pending_push.h"
#include "client/remote_server.h"
#include "client/rollback_accounting.h"
#include "client/slot_leases.h"
#include "client/update_pace.h"
#include "client/worker_momentum.h"
#include "common/block_map.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/model_layout.h"
#include "common/stop_latch.h"
#include "proto/parameter_service.pb.h"
#include "shm/push_segment.h"

namespace torchps {

// A worker's view of all parameter servers together: one flat vector that it pulls, and pushes
// gradients for. Talks to all servers at once, one stream per server and step, one block per frame,
// and repeats what did not get through under the same name (slot, incarnation, step), so that it is
// applied once.
//
// A call blocks until all servers have answered. BeginPull and BeginPush do not: what they return
// goes on by itself and is finished later, so that a push and the next pull run side by side, and
// beside the trainer's computing. A server that does not answer is asked again until
// Options::patience is used up. A server that has forgotten this slot (ABORTED) is greeted again,
// once per try, before it is asked again. One that was restarted and has its model back goes on
// where that is: what it has lost of this slot's pushes is counted, and not pushed again.
//
// Errors of every call:
//   UNAVAILABLE          a server has not answered for `patience`
//   ABORTED              another process has taken over this slot: stop
//   FAILED_PRECONDITION  another job, layout or protocol; no torchps server; one that has restarted
//                        and lost the model: stop
//   INVALID_ARGUMENT     a server refuses what was sent, or sent a frame that does not fit: stop
//   CANCELLED            Options::stop was stopped
//
// Several processes may hold one slot, each a part of its model: each has a client of its own for
// its part. Pushes of one step by all of them are one push of the slot. A part needs no Hello():
// its first pull or push greets the servers. It has no shared memory, and its pushes are never
// skipped.
//
// Thread-compatible: one thread, the trainer's, makes all calls; the network is the business of
// the thread that waits for one, and of the loop's own thread otherwise (CallLoop). leases()
// alone is for another thread, at the same time. Owns no memory of the model: spans are
// borrowed for the duration of a call, or of what BeginPull and BeginPush return, after which gRPC
// holds no reference to them any more.
class ParameterClient {
 public:
  struct Options {
    // In the order of BlockMap's servers. At least one.
    std::vector<ServerEndpoint> servers;
    ModelLayout layout;
    BlockMap block_map;
    // Of a process that holds a part of a slot's model, `layout` and `block_map` are that part's
    // (BlockMap::Part); this is the layout that servers know. Else empty.
    absl::optional<ModelLayout> whole_layout;
    // Normalised, as the coordinator has confirmed it.
    JobSpec job;
    uint64_t job_id = 0;
    // That the coordinator named with it; 0: none.
    uint64_t resumed_checkpoint = 0;
    SlotId slot = 0;
    Incarnation incarnation = 0;
    // Where the gradients that are pushed may lie, so that servers on this machine can read them
    // in place; what lies elsewhere goes through the network. Null: all of it does. Borrowed.
    PushSegment* push_segment = nullptr;
    // How long a server may be silent.
    absl::Duration patience = absl::Seconds(60);
    // Lines for the user: what is being waited for.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // Hears of what restarted servers have lost, block by block; may be null. Called on the
    // client's own thread or on one that waits for a call.
    RollbackAccounting::Listener on_rolled_back;
    // Borrowed.
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
    // What makes the calls. A thread that holds several slots gives their clients one loop, for
    // threads that push over one connection delay each other (bench/results/tuning.md). Null: the
    // client makes its own. Borrowed, and outlives the client.
    CallLoop* loop = nullptr;
  };

  // INVALID_ARGUMENT: no server, or not as many as the block map is for. Speaks to none yet.
  static absl::StatusOr<std::unique_ptr<ParameterClient>> Create(Options options);

  ParameterClient(const ParameterClient&) = delete;
  ParameterClient& operator=(const ParameterClient&) = delete;

  // Makes the slot live at every server. Returns the clock to start from: the largest of what the
  // servers tell of their floors and of this slot's last step.
  absl::StatusOr<Step> Hello();

  // From now on BeginPush() pushes the trained blocks that `blocks` has encoded, and is given no
  // gradients. Borrows them. REQUIRES: CanTakeEncoded(); no push has begun.
  void TakeEncoded(EncodedBlocks* blocks);
  // The job has an encoding in which all is pushed as the worker has computed it: no momentum comes
  // in between here, and no server reads floats in shared memory.
  bool CanTakeEncoded() const;

  // Pushes initial values, all layout.size() of them, as step 0.
  absl::Status Initialize(absl::Span<const float> values);

  // Gets all layout.size() values, as soon as the staleness bound lets `clock` read; `read_only`
  // asks no bound and needs no Hello. Keeps the blocks' versions for the next push. After an error
  // `values` may be partly new.
  // `held`: what `values` still hold of earlier pulls into them, brought up to date; what has not
  // changed since is not sent again. Null: nothing is known.
  // `on_block`: PendingPull::Options::on_block, here and below.
  absl::StatusOr<PullResult> Pull(Step clock, bool read_only, absl::Span<float> values,
                                  CachedVersions* held = nullptr,
                                  std::function<void(BlockId)> on_block = nullptr);

  // The same in two halves. Pushes that are begun before the pull is finished are based on the
  // versions of the one before. A pull may be ahead of the push of step `clock`; it begins at
  // `not_before`, or when it is finished. The client outlives what it returns.
  std::unique_ptr<PendingPull> BeginPull(Step clock, PullKind kind, absl::Span<float> values,
                                         CachedVersions* held = nullptr,
                                         absl::Duration not_before = absl::ZeroDuration(),
                                         std::function<void(BlockId)> on_block = nullptr);

  // Pushes `gradients` (layout.trained_size()) and the values of the averaged buffers
  // (layout.averaged_size()), computed from `weight` samples on what the last finished pull
  // brought, as step `step`. Rejected and late blocks are no error. Elements go as they are: a
  // momentum that the workers keep is BeginPush's. REQUIRES: `step` is above all earlier ones.
  absl::StatusOr<PushResult> Push(Step step, int64_t weight, absl::Span<const float> gradients,
                                  absl::Span<const float> averaged);

  // The same with blocks that become ready one by one and, if `check_finite`, are not sent if they
  // are not finite. Where the workers keep a momentum (client/worker_momentum.h) a block's gradient
  // becomes what is pushed once it is ready; `values` are those that it was computed on, as long as
  // the layout, and stay as they are until the push has ended. `progress`: the part of the job's
  // samples that were handed out before these, in 2^-32. `is_finite`: PendingPush::Options.
  // `share`: PushFrame.share. After TakeEncoded() `gradients` is empty. The client outlives what it
  // returns.
  std::unique_ptr<PendingPush> BeginPush(Step step, int64_t weight, absl::Span<float> gradients,
                                         absl::Span<const float> averaged,
                                         absl::Span<const float> values, bool check_finite,
                                         uint32_t progress = 0,
                                         std::function<bool(BlockId)> is_finite = nullptr,
                                         int64_t share = 0);

  // Whether every server would refuse a gradient of `step`, computed on the values of the last
  // finished pull, if it came now: in SYNC its round is over everywhere, in ASYNC it is older than
  // LargestLag() (job/update_rule.h). Asks all servers at once, unless too few updates can have
  // been made since the last step; false where one does not answer within a second. Called once a
  // step. A push may be under way.
  bool IsTooLate(Step step);

  // The slot stops counting at every server. Tries for a few seconds, also after a stop.
  absl::Status Leave();

  // What restarted servers have lost of what they had acknowledged, since the last call.
  RollbackAccounting::Lost TakeRolledBack() { return accounting_.TakeLost(); }
  // The same of other processes that hold the slot, for that to tell.
  void AddRolledBack(const RollbackAccounting::Lost& lost) { accounting_.AddLost(lost); }

  // The slot's leases at the servers, for the thread of its heartbeat.
  SlotLeases& leases() { return *leases_; }

 private:
  explicit ParameterClient(Options options);

  PendingPull::Options PullOptions(Step clock, PullKind kind, absl::Span<float> values,
                                   CachedVersions* held, absl::Duration not_before);
  PendingPush::Options PushOptions(Step step, int64_t weight, absl::Span<const float> gradients,
                                   absl::Span<const float> averaged);
  absl::Status CallAll(const std::vector<RemoteServer*>& servers, PlainRound::Make make,
                       FanOutCall::Rules rules);
  std::vector<RemoteServer*> AllServers();
  // Servers that own at least one block.
  std::vector<RemoteServer*> Owners();

  const Options options_;
  RollbackAccounting accounting_;
  std::vector<std::unique_ptr<RemoteServer>> servers_;
  std::unique_ptr<SlotLeases> leases_;
  // Per block, of the last finished pull.
  std::vector<Version> versions_;
  UpdatePace update_pace_;
  // Null where gradients travel as they are.
  std::unique_ptr<ErrorFeedback> error_feedback_;
  // Null where they do not come encoded.
  EncodedBlocks* encoded_ = nullptr;
  // Null where the job has none in its workers.
  const std::unique_ptr<WorkerMomentum> momentum_;
  // There was a Hello().
  bool greeted_ = false;
  // Null where the loop is shared. Its thread uses all of the above, so it ends first.
  const std::unique_ptr<CallLoop> own_loop_;
  CallLoop* const loop_;
};

}  // namespace torchps
