#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/cached_versions.h"
#include "client/coordinator_client.h"
#include "client/parameter_client.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/stop_latch.h"
#include "proto/coordinator.pb.h"
#include "worker/loop/lease_cursor.h"
#include "worker/loop/model_vectors.h"
#include "worker/loop/prefetch_policy.h"
#include "worker/loop/progress.h"
#include "worker/loop/progress_timer.h"
#include "worker/loop/smoothed_time.h"
#include "worker/loop/step_accounting.h"

namespace torchps {

// One slot's way through a job, step by step: asks the coordinator for work, pulls each step's
// values, pushes its gradient, until the coordinator says that the job is done. Computing is its
// caller's business: the Trainer's, or that of a program's own loop (program/session.h).
//
//   EACH_PUSH           NextWork -> for each step of the lease: Pull, compute, Push
//   WHOLE_BATCH, SYNC   Pull, then NextWork -> a lease of exactly one step: compute, Push. In this
//                       order all slots that wait for update t hold their leases of step t + 1
//                       before any of them can ask for one of step t + 2.
//
// Pushing and, where the loop prefetches, pulling go on behind the computing:
//
//   forward t | backward t                       | forward t + 1 | backward t + 1
//             | push t: blocks as they are final ..... its end   |
//             |      pull of the values of t + 1 |
//
// The push of step t must have ended before backward t + 1 writes the next gradient into the same
// memory (where a device computes in memory of its own: before anything of it is told), and before
// a lease is handed in, so that no sample counts as used whose gradient is not applied. Samples of
// a push of which every block was late or rejected are told with the lease, and the coordinator
// hands them out again. The pull begins as late as it can and still be done when backward is, so
// that the values are not older than need be. What of the slot's own step t they lack, the bound
// counts (docs/protocol.md, "Update rules").
//
// Thread-compatible: one thread makes all calls, but for BlockReady(). Borrows everything.
class StepLoop {
 public:
  struct Options {
    // Normalised, as the coordinator has confirmed it.
    JobSpec job;
    SlotId slot = 0;
    int64_t train_samples = 0;
    // The next step's values may be pulled while this one's gradient is computed, where the job
    // wants it or it hides enough (worker/loop/prefetch_policy.h). REQUIRES: the caller begins
    // transfers before its backward pass.
    bool may_prefetch = false;
    // How often a progress line is printed.
    absl::Duration progress_interval = absl::Seconds(1);
    // Takes the lines that psctl reads.
    std::function<void(const std::string& line)> print = [](const std::string&) {};
    ModelVectors* model = nullptr;
    ParameterClient* parameters = nullptr;
    CoordinatorClient* coordinator = nullptr;
    // This slot was asked for the model's initial values, and has pushed them.
    std::function<absl::Status()> on_initialized = [] { return absl::OkStatus(); };
    // Where other processes hold parts of the slot's model and have pushed theirs of the same step:
    // waits for them, and adds what came of it to `result`. Null: there are none.
    std::function<absl::Status(PushResult* result)> finish_others;
    // The model holds an epoch's values: fills in what an evaluation finds, but for epoch and
    // seconds. Null: there is nothing to evaluate.
    std::function<absl::Status(EvaluationResult* result)> evaluate;
    // The same values are to be kept as files.
    std::function<absl::Status(const KeepModel& keep, EvaluationResult* result)> hand_over;
    // The job is done, and the model holds what was learnt. Null: nobody asks, so that it is not
    // pulled.
    std::function<absl::Status()> on_end;
    // Told when the trainer works and when it waits.
    ProgressTimer* pulse = nullptr;
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
  };

  // What the next gradient is to be computed from, with the model's values as they are now.
  struct StepWork {
    // Indices in the training data; valid until the next call of Next().
    absl::Span<const int64_t> samples;
    // What of the lease comes after them; valid as long.
    absl::Span<const int64_t> upcoming;
    // Steps that this worker took before it.
    int64_t number = 0;
    int epoch = 0;  // from 1
    // Of the first sample in the epoch's order.
    int64_t position = 0;
    // Of a pass, at most: the slot's share where batches go by speed.
    int64_t batch_size = 0;
    // How far the job was when the samples were handed out, and when those behind them were, in
    // parts of 1.
    double progress_begin = 0;
    double progress_end = 0;
    // Without prefetching: the step's name, one above the clock that the values were pulled at, and
    // what its push says of how far the job was (PushFrame.progress).
    Step push_step = 1;
    uint32_t progress = 0;
    // PushFrame.share.
    int64_t share = 0;
  };

  // What came of a step.
  using Outcome = StepAccounting::Outcome;

  explicit StepLoop(Options options);

  // The next step; nothing once the job is done, and then the slot has left the servers' clocks.
  // Waits for the start of the job, for other slots and for the latest push as need be.
  // CANCELLED: stopped. ABORTED: the coordinator has sent the slot away, since too many of its
  // gradients in a row were not finite, or has given it to another process. Everything else comes
  // from the clients and the callbacks.
  absl::StatusOr<absl::optional<StepWork>> Next();

  // With consistency.stop_stale, and asked before BeginTransfers(): whether the gradient of the
  // present step would change nothing, since it would be late or rejected. Some steps in a row are
  // so at most: a slot that is always too slow is to bring one in now and then all the same.
  bool IsTooLate();
  // The present step's gradient is not computed to its end: Next() gives the same samples again,
  // with present values. REQUIRES: its transfers have not begun.
  void RestartStep();

  // The model's gradients() of a step on so many samples are about to be written, or blocks of them
  // to be told that a device had first. Waits for the push before; begins this step's, and the pull
  // of the next one's values.
  absl::Status BeginTransfers(int64_t samples);
  // The gradient of `block` is final and may be sent. From any thread, between BeginTransfers() and
  // EndStep() or DropStep().
  void BlockReady(BlockId block) { push_->BlockReady(block); }
  // The gradient's weight in its update, where that is not its samples (WeightedLoss). After
  // BeginTransfers(), before any block is ready.
  void SetWeight(double weight) { push_->SetWeight(weight); }
  // The whole gradient is final.
  void EndStep(Outcome outcome);
  // The step has failed: some of its blocks will never be ready.
  void DropStep() { push_.reset(); }
  // Waits for the push under way, if there is one, and enters it in the books.
  absl::Status FinishPush();

  // After the last step or an error: a push that has begun is ended cleanly, in the grace that it
  // has after a stop.
  void Close();

  // Pushes that were acknowledged.
  int64_t pushes() const { return accounting_.pushes(); }

 private:
  // Waits for the start; pushes the initial values if asked to. False: the job has ended already.
  absl::StatusOr<bool> AwaitStart();
  // Hands in what is finished and takes what is next. False: the job is done.
  absl::StatusOr<bool> TakeWork();
  absl::Status BeginLease(const DataLease& lease);
  bool LeaseIsUsedUp() const;
  absl::StatusOr<StepWork> NextOfLease();
  // PushFrame.share of a push of so many samples.
  int64_t GetShare(const DataLease& lease, int64_t samples, const StepWork& step) const;
  // The values of the next step, pulled already or now.
  absl::Status PullValues();
  // Pulls them now, and moves the clock on to the rounds that were completed without this slot.
  absl::StatusOr<PullResult> PullNow();
  // Pulls into the model's values.
  absl::StatusOr<PullResult> Pull(bool read_only);
  // When to begin a pull that is to end with the backward pass that begins now.
  absl::Duration LatestPull() const;
  // Evaluates the values that the servers have now, where the job evaluates, and hands them over.
  absl::Status Evaluate(int epoch, const absl::optional<KeepModel>& keep);
  // The values that the job ends with, for whoever asks for them.
  absl::Status PullFinal();
  // Makes the slot count in the servers' clocks, or no longer.
  absl::Status Enter();
  absl::Status Leave();
  absl::Status LeaveServers();

  const Options options_;
  const bool has_rounds_;
  const bool collects_pushes_;
  // Computing changes the values.
  const bool local_steps_;
  // None: to be asked for.
  LeaseCursor in_hand_;
  Progress progress_;
  // Its page is what was entered since the last NextWork that was answered.
  StepAccounting accounting_;
  // Last step pushed; the name of the next push is one above it.
  Step clock_ = 0;
  bool entered_ = false;
  int64_t steps_ = 0;
  // Steps that were begun anew since the last one that was computed to its end.
  int stops_in_a_row_ = 0;
  // What the model's values, and its next values, hold.
  CachedVersions held_;
  CachedVersions next_held_;
  // Of the present step: how far the job was when its samples were handed out.
  uint32_t handed_out_ = 0;
  // Of the present step: PushFrame.share.
  int64_t share_ = 0;

  bool started_ = false;
  bool idle_ = false;
  // When the present step was given out.
  absl::Duration step_since_;
  // The model's values are those of the lease's first step already.
  bool pulled_ = false;
  uint64_t finished_lease_ = 0;

  // The push of step clock_ + 1, and what its gradient was computed from. Between steps all of its
  // blocks are ready.
  std::unique_ptr<PendingPush> push_;
  Outcome pushed_;
  LeaseRange pushed_part_;
  // The next step's values, on their way to the model's next_values(), now or soon.
  std::unique_ptr<PendingPull> ahead_;
  // When the present step's transfers began, and how long the last backward passes and pulls took,
  // the newest counting most.
  absl::Duration transfers_since_;
  SmoothedTime backward_time_;
  SmoothedTime pull_time_;
  PrefetchPolicy prefetch_policy_;
};

}  // namespace torchps
