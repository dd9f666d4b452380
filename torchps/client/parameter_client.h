#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "torchps/client/call_loop.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/client/error_feedback.h"
#include "torchps/client/fan_out_call.h"
#include "torchps/client/pending_pull.h"
#include "torchps/client/pending_push.h"
#include "torchps/client/remote_server.h"
#include "torchps/client/rollback_accounting.h"
#include "torchps/client/slot_leases.h"
#include "torchps/client/step_set.h"
#include "torchps/client/worker_momentum.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/stop_latch.h"
#include "torchps/common/types.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/transport/push_segments.h"

namespace torchps {

// Presents all parameter servers to a worker as one flat vector of values. The worker pulls the
// vector and pushes gradients for it. Talks to all servers in parallel, with one stream per server
// and step, and one block per frame. Repeats failed transfers under the same (slot, incarnation,
// step), so that each push is applied once.
//
// Calls block until all servers have answered, except BeginPull and BeginPush. These return an
// object at once, and the caller finishes it later. So a push, the next pull and the trainer's
// computation can overlap. The client retries a silent server until Options::patience is used up.
// If a server does not know this slot (ABORTED), the client sends a Hello before each retry. If a
// restarted server restored the model, the client continues from the restored state. It counts this
// slot's lost pushes and does not repeat them.
//
// Errors of each call:
//   UNAVAILABLE          a server did not answer for `patience`
//   ABORTED              another process took over this slot: stop
//   FAILED_PRECONDITION  another job, layout or protocol; not a torchps server; a server restarted
//                        and lost the model: stop
//   INVALID_ARGUMENT     a server refuses the request, or sent an invalid frame: stop
//   CANCELLED            Options::stop was stopped
//
// Several processes may share one slot, each with a client for one part of the model. Their pushes
// of one step form one push of the slot. Clients of a part need no Hello(), because the first pull
// or push sends it. They do not use shared memory. They send a push even if all of their blocks are
// non-finite (PushResult::skipped is never true).
//
// Thread-compatible: only the trainer's thread makes calls, except that another thread may use
// leases() at the same time. The waiting thread or the loop's thread handles the network
// (CallLoop). Does not own model memory. Spans are borrowed during a call, or during the lifetime
// of the object that BeginPull or BeginPush returned. After that, gRPC holds no references to them.
class ParameterClient {
 public:
  struct Options {
    // In BlockMap's server order; at least one.
    std::vector<ServerEndpoint> servers;
    ModelLayout layout;
    BlockMap block_map;
    // The layout known to the servers, if this process holds only a part of a slot's model. Then
    // `layout` and `block_map` describe that part (BlockMap::Part). Otherwise empty.
    std::optional<ModelLayout> whole_layout;
    // Normalized (torchps/job/job_spec.h), as confirmed by the coordinator.
    JobSpec job;
    uint64_t job_id = 0;
    // The checkpoint from which the job resumed, as reported by the coordinator; 0 if the job was
    // not resumed.
    uint64_t resumed_checkpoint = 0;
    SlotId slot = 0;
    Incarnation incarnation = 0;
    // Memory for pushed gradients that servers on this machine can read in place. Gradients outside
    // this memory use the network. Null: all gradients use the network. Borrowed.
    PushSegment* push_segment = nullptr;
    // How long a server may be silent.
    absl::Duration patience = absl::Seconds(60);
    // Receives lines for the user, for example about waiting.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // Called for each block's updates that a restarted server lost, on the loop's thread or on a
    // thread that waits for a call. May be null.
    RollbackAccounting::Listener on_rolled_back;
    // Borrowed.
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
    // Makes the calls. If one thread holds several slots, their clients should share a loop,
    // because threads that push over one connection delay each other (bench/results/tuning.md).
    // Null: the client creates a loop. Borrowed, and must outlive the client.
    CallLoop* loop = nullptr;
  };

  // Returns INVALID_ARGUMENT if `servers` is empty, or if the block map is for another number of
  // servers. Does not contact the servers.
  static absl::StatusOr<std::unique_ptr<ParameterClient>> Create(Options options);

  ParameterClient(const ParameterClient&) = delete;
  ParameterClient& operator=(const ParameterClient&) = delete;

  // Makes the slot live on each server, once all servers can be reached. Returns the clock to start
  // from: the maximum of the servers' min clocks and this slot's last step.
  absl::StatusOr<Step> Hello();

  // From now on, BeginPush() gets the trained blocks in encoded form from `blocks`, and no
  // gradients. Borrows `blocks`. REQUIRES: CanTakeEncoded(); no push was started.
  void TakeEncoded(EncodedBlocks* blocks);
  // True if the job uses a lossy encoding but no worker momentum, and if servers cannot read the
  // floats in shared memory (Options::push_segment is null).
  bool CanTakeEncoded() const;

  // Pushes initial values, layout.size() elements, as step 0.
  absl::Status Initialize(absl::Span<const float> values);

  // Pulls all layout.size() values as soon as the staleness bound permits a slot with this `clock`
  // to read. `read_only` pulls ignore the bound and need no Hello. Keeps the blocks' versions for
  // the next push. After an error, `values` may be partly new. `held`: the versions that `values`
  // contain from earlier pulls; the call updates them. Servers do not send unchanged blocks again.
  // Null: the versions are unknown. `on_block`: see PendingPull::Options::on_block, here and below.
  absl::StatusOr<PullResult> Pull(Step clock, bool read_only, absl::Span<float> values,
                                  CachedVersions* held = nullptr,
                                  std::function<void(BlockId)> on_block = nullptr);

  // Returns a pull that the caller finishes later. It starts at the clock time `not_before`, or
  // earlier if the caller calls Finish(). Pushes that begin before Finish() returns are based on
  // the previous pull's versions. With PullKind::kAhead, the pull may run before the push of step
  // `clock`. The client must outlive the returned object.
  std::unique_ptr<PendingPull> BeginPull(Step clock, PullKind kind, absl::Span<float> values,
                                         CachedVersions* held = nullptr,
                                         absl::Duration not_before = absl::ZeroDuration(),
                                         std::function<void(BlockId)> on_block = nullptr);

  // Pushes `gradients` (layout.trained_size()) and the values of the averaged buffers
  // (layout.averaged_size()) as step `step`. Both were computed from `weight` samples on the values
  // of the last finished pull. Rejected and late blocks are not errors. Does not apply worker
  // momentum; BeginPush does. REQUIRES: `step` is above all earlier steps.
  absl::StatusOr<PushResult> Push(Step step, int64_t weight, absl::Span<const float> gradients,
                                  absl::Span<const float> averaged);

  // Starts a push of blocks that become ready one by one. With `check_finite`, non-finite blocks
  // are not sent. Applies the worker momentum, if the job uses it
  // (torchps/client/worker_momentum.h), to each block in place once it is ready. `values` are the
  // values that the gradient was computed on. They are as long as the layout and must not change
  // until the push ends. `progress`: the part of the job's samples assigned before these samples,
  // in units of 2^-32. `is_finite`: see PendingPush::Options. `share`: see PushFrame.share. After
  // TakeEncoded(), `gradients` is empty. The client must outlive the returned object.
  std::unique_ptr<PendingPush> BeginPush(Step step, int64_t weight, absl::Span<float> gradients,
                                         absl::Span<const float> averaged,
                                         absl::Span<const float> values, bool check_finite,
                                         uint32_t progress = 0,
                                         std::function<bool(BlockId)> is_finite = nullptr,
                                         int64_t share = 0);

  // True if each server would now refuse a gradient of `step` based on the last finished pull. In
  // SYNC, the round is over on each server; in ASYNC, the gradient's lag exceeds LargestLag()
  // (torchps/job/consistency_fields.h). Queries all servers at once. In ASYNC it skips the query if
  // too few updates can have happened since the last step (UpdatePace). Returns false if a server
  // does not answer within one second. Called once per step. A push may be in progress.
  bool IsTooLate(Step step);

  // Makes the slot leave each server's clock. Retries for a few seconds, even after a stop.
  absl::Status Leave();

  // Returns the acknowledged updates that restarted servers lost since the last call.
  RollbackAccounting::Lost TakeRolledBack() { return accounting_.TakeLost(); }
  // Adds the losses of other processes that share the slot, so that TakeRolledBack() returns them
  // too.
  void AddRolledBack(const RollbackAccounting::Lost& lost) { accounting_.AddLost(lost); }

  // The slot's leases on the servers, used by the heartbeat thread.
  SlotLeases& leases() { return *leases_; }

 private:
  explicit ParameterClient(Options options);

  PendingPull::Options PullOptions(Step clock, PullKind kind, absl::Span<float> values,
                                   CachedVersions* held, absl::Duration not_before);
  PendingPush::Options PushOptions(Step step, int64_t weight, absl::Span<const float> gradients,
                                   absl::Span<const float> averaged);
  // Waits until each server has answered a call, without entering.
  absl::Status ReachAll();
  absl::Status CallAll(const std::vector<RemoteServer*>& servers, PlainRound::Make make,
                       FanOutCall::Rules rules);
  std::vector<RemoteServer*> AllServers();
  // Servers that own at least one block.
  std::vector<RemoteServer*> Owners();

  const Options options_;
  RollbackAccounting accounting_;
  std::vector<std::unique_ptr<RemoteServer>> servers_;
  std::unique_ptr<SlotLeases> leases_;
  // By block, as of the last finished pull.
  std::vector<Version> versions_;
  UpdatePace update_pace_;
  // Null if the job does not use a lossy encoding.
  std::unique_ptr<ErrorFeedback> error_feedback_;
  // Null unless TakeEncoded() was called.
  EncodedBlocks* encoded_ = nullptr;
  // Null if the job does not use worker momentum.
  const std::unique_ptr<WorkerMomentum> momentum_;
  // True after a Hello().
  bool greeted_ = false;
  // Null if the loop is shared. Destroyed first, because the loop's thread uses the members above.
  const std::unique_ptr<CallLoop> own_loop_;
  CallLoop* const loop_;
};

}  // namespace torchps
