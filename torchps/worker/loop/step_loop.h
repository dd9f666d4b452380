#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/client/coordinator_client.h"
#include "torchps/client/parameter_client.h"
#include "torchps/client/pending_pull.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/worker/loop/lease_cursor.h"
#include "torchps/worker/loop/loop_hooks.h"
#include "torchps/worker/loop/model_vectors.h"
#include "torchps/worker/loop/prefetch_policy.h"
#include "torchps/worker/loop/step_accounting.h"
#include "torchps/worker/loop/step_work.h"

namespace torchps {

// Runs a job's steps for one slot: requests work from the coordinator, pulls the values of each
// step and pushes the gradient, until the coordinator ends the job. The caller computes the
// gradients: the Trainer, or the training loop of a program (torchps/session.h).
//
//   EACH_PUSH           NextWork -> for each step of the lease: Pull, compute, Push
//   WHOLE_BATCH, SYNC   Pull, then NextWork -> a lease of exactly one step: compute, Push. A slot
//                       pulls after its push has ended, and the push ends with the update. So a
//                       slot can request the lease of step t + 2 only after update t + 1. The other
//                       slots of this update hold their leases of step t + 1 by then.
//
// Pushes run in the background while the caller computes. If the loop prefetches, so do pulls:
//
//   forward t | backward t                       | forward t + 1 | backward t + 1
//             | push t: blocks as they are final ..... its end   |
//             |      pull of the values of t + 1 |
//
// The push of step t must end before backward t + 1 overwrites the gradient memory. If a device
// computes in separate memory, the push must end before blocks of step t + 1 are reported. It must
// also end before the lease is handed in, so that samples count as used only if their gradient was
// applied. If all blocks of a push were late or rejected, the loop reports the samples with the
// lease, and the coordinator leases them again.
//
// A prefetching pull begins as late as it can while still finishing with the backward pass, so that
// its values are fresh. These values may lack the slot's own push of step t. The server
// nevertheless applies the staleness bound to clock t (docs/protocol.md, "Update rules").
//
// Thread-compatible, except that BlockReady() may be called from any thread. Borrows everything.
class StepLoop {
 public:
  struct Options {
    // Normalized, as confirmed by the coordinator.
    JobSpec job;
    SlotId slot = 0;
    int64_t train_samples = 0;
    // Allows pulling the next step's values while the current gradient is computed, if the job asks
    // for it or PrefetchPolicy decides so. REQUIRES: the caller calls BeginTransfers() before the
    // backward pass.
    bool may_prefetch = false;
    // The interval between progress lines.
    absl::Duration progress_interval = absl::Seconds(1);
    // Receives the lines that psctl parses.
    std::function<void(const std::string& line)> print = [](const std::string&) {};
    ModelVectors* model = nullptr;
    ParameterClient* parameters = nullptr;
    CoordinatorClient* coordinator = nullptr;
    // Called until Close() returns.
    LoopHooks* hooks = nullptr;
    // Records when the trainer works and when it waits.
    ProgressTimer* pulse = nullptr;
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
  };

  using Outcome = StepAccounting::Outcome;

  explicit StepLoop(Options options);

  // Returns the next step, or nullopt once the job is done and the slot has left the servers'
  // clocks. Blocks until the job starts, and waits for other slots and for the latest push if
  // necessary. CANCELLED: stopped. ABORTED: the coordinator removed the slot because too many
  // consecutive gradients were not finite, or gave the slot to another process. Also returns errors
  // of the clients and the hooks.
  absl::StatusOr<std::optional<StepWork>> Next();

  // Returns true if all servers would reject the current step's gradient or call it late, so that
  // it is not worth computing. Call it before BeginTransfers(). Returns false without
  // consistency.stop_stale. Also returns false after three calls of RestartStep() in a row, so that
  // even a slot that is always too slow pushes now and then.
  bool IsTooLate();
  // Abandons the current step: Next() returns the same samples again, with fresh values. REQUIRES:
  // BeginTransfers() was not called for the step.
  void RestartStep();

  // Waits for the previous push, then begins the push of this step and, if the loop prefetches, the
  // next pull. Call it before gradients() are written on the host, or before BlockReady() reports
  // blocks from a device.
  absl::Status BeginTransfers(int64_t samples);
  // Allows sending the gradient of `block`, which is final. Any thread may call it, between
  // BeginTransfers() and EndStep() or DropStep().
  void BlockReady(BlockId block) { push_->BlockReady(block); }
  // Sets the gradient's weight in the update; by default, the weight is the number of samples.
  // Needed for a WeightedLoss (torchps/worker/objective.h). Call it after BeginTransfers() and
  // before any block is ready.
  void SetWeight(double weight) { push_->SetWeight(weight); }
  // Ends the step: the whole gradient is final.
  void EndStep(Outcome outcome);
  // Drops the push of a step that failed, because some of the blocks will never be ready.
  void DropStep() { push_.reset(); }
  // Waits for the push in flight, if any, and records the result.
  absl::Status FinishPush();

  // Waits for a push in flight, after a stop for at most kPushGrace
  // (torchps/client/pending_push.cc), and drops a prefetch. Call it after the last step or an
  // error.
  void Close();

  // Returns the number of acknowledged pushes.
  int64_t pushes() const { return accounting_.pushes(); }

 private:
  // Blocks until the job starts, pushing initial values if this slot is asked to. Returns false if
  // the job is over.
  absl::StatusOr<bool> AwaitStart();
  // Reports finished work and handles the coordinator's next instruction. Returns false if the job
  // is done.
  absl::StatusOr<bool> TakeWork();
  absl::Status BeginLease(const DataLease& lease);
  bool LeaseIsUsedUp() const;
  absl::StatusOr<StepWork> NextOfLease();
  // Returns StepWork::share. REQUIRES: the step's samples and batch_size are set.
  int64_t GetShare(const DataLease& lease, const StepWork& step) const;
  // Gets the values of the next step, from the prefetch or by pulling now.
  absl::Status PullValues();
  // Pulls the values now. In SYNC, advances the clock past rounds completed without this slot.
  absl::StatusOr<PullResult> PullNow();
  // Pulls into the model's values.
  absl::StatusOr<PullResult> Pull(bool read_only);
  // Returns the latest time to begin a pull that must end with the current backward pass.
  absl::Duration LatestPull() const;
  // Pulls the servers' current values and evaluates them if the job evaluates. Calls
  // LoopHooks::HandOver() with them if `keep` is set.
  absl::Status Evaluate(int epoch, const std::optional<KeepModel>& keep);
  // Pulls the final values of the job, if the caller asked for them.
  absl::Status PullFinal();
  // Enter() and Leave() enter and leave the servers' clocks, if the slot has not done so already.
  // LeaveServers() always calls the servers.
  absl::Status Enter();
  absl::Status Leave();
  absl::Status LeaveServers();

  const Options options_;
  const bool has_rounds_;
  const bool collects_pushes_;
  // True if the job has local steps, which change the values.
  const bool local_steps_;
  // If the cursor holds no lease, Next() requests one.
  LeaseCursor cursor_;
  Progress progress_;
  // The page covers the time since the last answered NextWork.
  StepAccounting accounting_;
  // The last step pushed. The next push is step clock_ + 1.
  Step clock_ = 0;
  bool entered_ = false;
  int64_t steps_ = 0;
  // The number of steps restarted since the last completed step.
  int stops_in_a_row_ = 0;
  // The block versions in values() and in next_values().
  CachedVersions held_;
  CachedVersions next_held_;
  // Job progress when the current step's samples were leased.
  uint32_t handed_out_ = 0;
  // PushFrame.share of the current step.
  int64_t share_ = 0;

  bool started_ = false;
  bool idle_ = false;
  // The start time of the current step.
  absl::Duration step_since_;
  // True if values() are already those of the lease's first step.
  bool pulled_ = false;
  uint64_t finished_lease_ = 0;

  // The push of step clock_ + 1 and that step's outcome. Between steps, all its blocks are ready.
  std::unique_ptr<PendingPush> push_;
  Outcome pushed_;
  LeaseRange pushed_part_;
  // The pull of the next step's values into next_values(), running or scheduled.
  std::unique_ptr<PendingPull> ahead_;
  // The start time of the current step's transfers, and moving averages of backward and pull times.
  absl::Duration transfers_since_;
  SmoothedTime backward_time_;
  SmoothedTime pull_time_;
  PrefetchPolicy prefetch_policy_;
};

}  // namespace torchps
