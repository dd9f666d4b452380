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
#include "common/block_map.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/integer_histogram.h"
#include "common/model_layout.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "proto/parameter_service.pb.h"
#include "server/job/finished_pushes.h"
#include "server/job/job_membership.h"
#include "server/job/job_parts.h"
#include "server/job/pull_gate.h"
#include "server/job/shared_frames.h"
#include "server/job/slot_activity.h"
#include "server/job/step_times.h"
#include "server/store/block_journal.h"
#include "server/store/job_storage.h"
#include "server/store/parameter_store.h"
#include "shm/push_segments.h"
#include "wire/frame_codec.h"

namespace torchps {

// One job as one parameter server holds it: its share of the blocks, and the rules by which slots
// may push and pull. This is the whole data plane but for gRPC.
//
// Thread-safe. Waiting calls are continuations; they run on the thread that made them due, never
// under a lock. Owned by the ParameterServer; lives until the process ends.
class HostedJob {
 public:
  // Where a pull stands when the gate lets it go.
  struct PullGrant {
    int64_t min_clock = 0;
    absl::Duration parked;
  };
  using PullDone = std::function<void(const PullGrant&)>;
  using PushDone = FinishedPushes::Done;
  // Names a parked call; 0 is one that never parked.
  using ParkedId = uint64_t;

  // `request` is the first Hello that this server got. Errors as MakeJobParts; INVALID_ARGUMENT: a
  // slot that no worker can have; or what `storage` says, from which the blocks are restored.
  // `clock` and `storage` outlive this object; without `storage` (null) nothing is kept.
  static absl::StatusOr<std::unique_ptr<HostedJob>> Create(const HelloRequest& request,
                                                           const Clock* clock,
                                                           JobStorage* storage = nullptr);

  ~HostedJob();
  HostedJob(const HostedJob&) = delete;
  HostedJob& operator=(const HostedJob&) = delete;

  // FAILED_PRECONDITION with the first difference, if this Hello is of another job, model or
  // placement.
  absl::Status CheckSame(const HelloRequest& request) const {
    return CheckSameJob(parts_, request);
  }

  // Makes the slot live here. Fills floor, last_step, initialized and restored.
  absl::Status Enter(SlotId slot, Incarnation incarnation, HelloReply* reply);

  // Takes the shared memory that a worker offers in its Hello, if this job and this machine allow
  // it: the slot may then push from there, and the reply offers where it may pull from. REQUIRES:
  // the slot has entered.
  void Share(const HelloRequest& request, HelloReply* reply);

  // Whether this incarnation is the slot's live one. ABORTED: it is not, so that its frames would
  // be refused.
  absl::Status CheckLive(SlotId slot, Incarnation incarnation) const {
    return membership_.Admit(slot, incarnation);
  }

  // Renews the slot's lease, and tells how far this server is and for whom it waits. `standing`:
  // for how long the slot's trainer has been at one piece of its own work. ABORTED as Pull().
  absl::StatusOr<RenewReply> Renew(SlotId slot, Incarnation incarnation,
                                   absl::Duration stalled_for = absl::ZeroDuration());
  void Leave(SlotId slot, Incarnation incarnation);
  // The same, and that incarnation does not enter any more.
  void End(SlotId slot, Incarnation incarnation);

  // One frame of a Push; step 0 initialises. Errors as in ParameterStore, and INVALID_ARGUMENT for
  // a frame that refers to shared memory that is not shared or to blocks that are not here.
  absl::Status PushFrame(const PushHeader& header, const FramePayload& payload);

  // All frames of (slot, incarnation, step) have come, or those of a `part` of the blocks: `done`
  // gets the reply once the push is settled (PushPolicy::IsSettled) and the journal has it. The
  // slot's clock rises when all blocks have seen the step. Returns the name by which to cancel it.
  // Errors as ParameterStore::Acknowledge.
  ParkedId FinishPush(SlotId slot, Incarnation incarnation, Step step, PushDone done,
                      std::vector<BlockId> part = {});

  // `done` runs when the staleness bound lets `clock` read: at once, or parked. `ahead`: the slot
  // is still computing that step. On error it does not run. ABORTED: the incarnation is not live
  // here.
  absl::StatusOr<ParkedId> Pull(SlotId slot, Incarnation incarnation, Step clock, bool ahead,
                                PullDone done);

  // A read outside the gate.
  PullGrant ReadOnlyPull() const;

  // Forgets a parked call whose caller is gone; its continuation will not run.
  void CancelPull(ParkedId id);
  void CancelPush(ParkedId id) { finished_pushes_.Cancel(id); }

  // Where pushes are recorded; null: nowhere.
  BlockJournal* journal() const { return journal_; }

  // How many slots are live here. More may be than the job asks for.
  int live_slots() const { return membership_.live_slots(); }

  // Lets slots die whose lease has run out.
  void ExpireLeases();

  // Makes the updates that time has made due. To be called now and then, and where SetWake() asks
  // for it.
  void MakeDueUpdates();
  // `wake` hears in how long MakeDueUpdates() will have something to do: under no lock, on any
  // thread.
  // REQUIRES: no slot has entered.
  void SetWake(std::function<void(absl::Duration delay)> wake) { wake_ = std::move(wake); }

  ParameterStore& store() { return *parts_.store; }
  const JobSpec& spec() const { return parts_.spec; }
  const ModelLayout& layout() const { return parts_.layout; }
  const BlockMap& map() const { return parts_.map; }
  int server_index() const { return parts_.server_index; }
  uint64_t job_id() const { return parts_.job_id; }
  // How values travel to workers that train; a pull that only reads gets them as they are.
  EncodingSpec::Kind pull_encoding() const { return spec().wire().pull().kind(); }

  void Describe(bool include_ledger, ServerStatus* status);

 private:
  struct SlotFigures {
    uint64_t pushes = 0;
    std::pair<Incarnation, Step> last_push = {0, 0};      // of those counted
    std::pair<Incarnation, Step> last_finished = {0, 0};  // whose frames have all come
    uint64_t parked_pulls = 0;
    absl::Duration parked;
    // Of finished pushes, for their update.
    absl::Duration waited;
    absl::Duration longest_wait;
  };

  HostedJob(JobParts parts, const Clock* clock);

  // The blocks of a frame whose payload lies in the worker's shared memory.
  absl::Status PushShared(const PushHeader& header);
  absl::Status PushBlock(const PushHeader& header, const FramePayload& payload);

  // Brings the blocks back, if there is anything to bring back, for the worker that says `request`.
  absl::Status RestoreFrom(JobStorage* storage, const HelloRequest& request);
  // In SYNC, after a restore, a slot may come with a step of a round that is still ahead here: what
  // it brings tells where it is, as a first pull does. UNAVAILABLE while others are to come back
  // before that round can be.
  absl::Status CatchUp(const PushHeader& header);

  // The push has changed what it changes, and the journal has that.
  void Answer(const FinishedPushes::Push& push) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether pulls or pushes wait for a slot.
  bool AnyWaits() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Tells `wake_` when the next update is due by time, if it has not been told of this one.
  void AnnounceDue() ABSL_LOCKS_EXCLUDED(mutex_);

  // Clocks or blocks have changed: runs the pulls and answers the pushes that are due by that.
  void RaiseMinClocks() ABSL_LOCKS_EXCLUDED(mutex_);

  PullGrant Grant(SlotId slot, Step clock, absl::Duration parked) ABSL_LOCKS_EXCLUDED(mutex_);

  const JobParts parts_;
  const Clock* const clock_;
  // What this life began from. Set in Create, as the journal (null: none) and the storage.
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
