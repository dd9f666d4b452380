#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/integer_histogram.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/job/finished_pushes.h"
#include "torchps/server/job/frame_admission.h"
#include "torchps/server/job/job_membership.h"
#include "torchps/server/job/job_parts.h"
#include "torchps/server/job/slot_clocks.h"
#include "torchps/server/store/block_journal.h"
#include "torchps/server/store/job_storage.h"
#include "torchps/server/store/parameter_store.h"
#include "torchps/transport/frame_codec.h"
#include "torchps/transport/push_segments.h"

namespace torchps {

// Holds one job's share at one parameter server: the blocks, and the rules for when slots may push
// and pull. This class is the data plane without gRPC.
//
// Thread-safe. Calls that wait are continuations. They run on the thread that makes them due,
// without a lock held. Owned by the ParameterServer; lives until the process ends.
class HostedJob final : private FinishedPushes::Owner {
 public:
  // The min clock and the waiting time when the gate releases a pull.
  struct PullGrant {
    int64_t min_clock = 0;
    absl::Duration parked;
  };
  using PullDone = std::function<void(const PullGrant&)>;
  using PushDone = FinishedPushes::Done;
  // Identifies a parked call; 0 if the call did not park.
  using ParkedId = uint64_t;

  // Creates the job from the first Hello, and restores the blocks from `storage`. INVALID_ARGUMENT:
  // the slot is invalid. Otherwise as MakeJobParts and JobStorage::Open. `clock` and `storage`
  // outlive this object. If `storage` is null, the job is not saved.
  static absl::StatusOr<std::unique_ptr<HostedJob>> Create(const HelloRequest& request,
                                                           const Clock* clock,
                                                           JobStorage* storage = nullptr);

  ~HostedJob() override;
  HostedJob(const HostedJob&) = delete;
  HostedJob& operator=(const HostedJob&) = delete;

  // FAILED_PRECONDITION if this Hello belongs to another job, model or placement; the message names
  // the first difference.
  absl::Status CheckSame(const HelloRequest& request) const {
    return CheckSameJob(parts_, request);
  }

  // Makes the slot live here. Fills min_clock, last_step, initialized and restored.
  absl::Status Enter(SlotId slot, Incarnation incarnation, HelloReply* reply);

  // Opens the shared memory that a worker offers in the Hello request, if the job and the machine
  // allow it. The slot may then push from this memory, and the reply offers the memory to pull
  // from.
  // REQUIRES: the slot has entered.
  void Share(const HelloRequest& request, HelloReply* reply);

  // ABORTED if this incarnation is not the slot's live one. Its frames would be refused.
  absl::Status CheckLive(SlotId slot, Incarnation incarnation) const {
    return membership_.Admit(slot, incarnation);
  }

  // True if a checkpoint should free disk space soon.
  bool wants_checkpoint() const { return storage_ != nullptr && storage_->wants_checkpoint(); }

  // Renews the slot's lease. Returns this server's progress and the slot that other slots wait for,
  // if any. `stalled_for` is how long the slot's trainer has been in one piece of work. ABORTED: as
  // Pull().
  absl::StatusOr<RenewReply> Renew(SlotId slot, Incarnation incarnation,
                                   absl::Duration stalled_for = absl::ZeroDuration());
  void Leave(SlotId slot, Incarnation incarnation);
  // Does the same as Leave(), and refuses this incarnation from now on.
  void End(SlotId slot, Incarnation incarnation);

  // Applies one frame of a Push. Step 0 sets initial values. Errors as ParameterStore::Push and
  // Initialize. INVALID_ARGUMENT: the frame refers to shared memory that is not shared, or to
  // blocks that this server does not own.
  absl::Status PushFrame(const PushHeader& header, const FramePayload& payload);

  // Called after the last frame of (slot, incarnation, step), or of a `part` of the blocks. `done`
  // receives the reply once the push is settled (PushPolicy::IsSettled) and the journal has made it
  // durable. The slot's clock rises when all blocks have seen the step. Returns the id for
  // CancelPush(). `done` receives the errors of ParameterStore::Acknowledge.
  ParkedId FinishPush(SlotId slot, Incarnation incarnation, Step step, PushDone done,
                      std::vector<BlockId> part = {});

  // Runs `done` when the staleness bound allows a read at `clock`: now, or later from the parked
  // call. `ahead` is true if the slot has not pushed step `clock` yet. ABORTED: the incarnation is
  // not live here; `done` does not run.
  absl::StatusOr<ParkedId> Pull(SlotId slot, Incarnation incarnation, Step clock, bool ahead,
                                PullDone done);

  // Grants a read that bypasses the gate.
  PullGrant ReadOnlyPull() const;

  // Forgets a parked call after the caller is gone; the continuation does not run.
  void CancelPull(ParkedId id);
  void CancelPush(ParkedId id) { finished_pushes_.Cancel(id); }

  // The journal that records pushes; may be null.
  BlockJournal* journal() const { return journal_; }

  // Number of live slots here. May exceed the number that the job asks for.
  int live_slots() const { return membership_.live_slots(); }

  // Drops the slots with expired leases.
  void ExpireLeases();

  // Applies the updates that are due by time. Must be called periodically, and when `wake` asks for
  // it.
  void MakeDueUpdates();
  // `wake` receives the delay after which MakeDueUpdates() should run. Called on any thread,
  // without a lock held.
  // REQUIRES: no slot has entered.
  void SetWake(std::function<void(absl::Duration delay)> wake) { wake_ = std::move(wake); }

  ParameterStore& store() { return *parts_.store; }
  const JobSpec& spec() const { return parts_.spec; }
  const ModelLayout& layout() const { return parts_.layout; }
  const BlockMap& map() const { return parts_.map; }
  int server_index() const { return parts_.server_index; }
  uint64_t job_id() const { return parts_.job_id; }
  // Encoding of values for workers that train. A read-only pull receives exact values.
  EncodingSpec::Kind pull_encoding() const { return spec().wire().pull().kind(); }

  void Describe(bool include_ledger, ServerStatus* status);

 private:
  struct SlotFigures {
    uint64_t pushes = 0;
    std::pair<Incarnation, Step> last_push = {0, 0};      // the last one counted
    std::pair<Incarnation, Step> last_finished = {0, 0};  // the last one received
    uint64_t parked_pulls = 0;
    absl::Duration parked;
    // Waits of completely received pushes for their answer: the sum, and the longest wait.
    absl::Duration waited;
    absl::Duration longest_wait;
  };

  HostedJob(JobParts parts, const Clock* clock);

  // Pushes the blocks of a frame that keeps the payload in the worker's shared memory.
  absl::Status PushShared(const PushHeader& header);
  absl::Status PushBlock(const PushHeader& header, const FramePayload& payload);

  // Restores the blocks from `storage` for the worker that sent `request`, if anything is saved.
  absl::Status RestoreFrom(JobStorage* storage, const HelloRequest& request);
  // In SYNC after a restore, a slot may push a step of a later round than this server's current
  // one. The push then raises the slot's clock, as the slot's first pull would. UNAVAILABLE: other
  // slots must return before that round can run.
  absl::Status CatchUp(const PushHeader& header);

  // FinishedPushes::Owner.
  bool IsSettled(const FinishedPushes::Push& push) const override {
    return parts_.policy->IsSettled(push.slot, push.step);
  }
  void Answer(const FinishedPushes::Push& push) override ABSL_LOCKS_EXCLUDED(mutex_);

  // True if pulls or pushes wait for a slot.
  bool AnyWaits() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `wake_` with the delay until the next update that is due by time. Does nothing if `wake_`
  // already knows that time.
  void AnnounceDue() ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs the pulls and answers the pushes that are due after clocks or blocks changed.
  void RaiseMinClocks() ABSL_LOCKS_EXCLUDED(mutex_);

  PullGrant Grant(SlotId slot, Step clock, absl::Duration parked) ABSL_LOCKS_EXCLUDED(mutex_);

  const JobParts parts_;
  const int64_t most_samples_;  // of a push
  const Clock* const clock_;
  // The checkpoint or log that this process restored. Create() sets this, the journal and the
  // storage.
  std::optional<JobStorage::Origin> restored_;
  JobStorage* storage_ = nullptr;
  BlockJournal* journal_ = nullptr;
  std::function<void(absl::Duration delay)> wake_;

  PushSegments push_segments_;
  SharedFrames shared_frames_;
  JobMembership membership_;
  SlotActivity activity_;
  FinishedPushes finished_pushes_;

  mutable Mutex mutex_;
  PullGate pull_gate_ ABSL_GUARDED_BY(mutex_);
  IntegerHistogram clock_gap_ ABSL_GUARDED_BY(mutex_);
  std::map<SlotId, SlotFigures> figures_ ABSL_GUARDED_BY(mutex_);
  StepTimes step_times_ ABSL_GUARDED_BY(mutex_);
  absl::Duration announced_due_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
};

}  // namespace torchps
