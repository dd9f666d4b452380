#include "torchps/worker/loop/step_loop.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/common/types.h"
#include "torchps/job/consistency_fields.h"
#include "torchps/job/local_steps.h"

namespace torchps {
namespace {

// Multiple of the expected pull time to reserve, because pulls vary more than passes do.
constexpr double kPullMargin = 3;
// If a slot restarted its step this many times in a row, it is always too slow. Its next attempt is
// pushed although it may be late.
constexpr int kMaxStopsInARow = 3;

std::optional<bool> WantsPrefetch(const StepLoop::Options& options) {
  if (!options.may_prefetch) return false;
  const ConsistencySpec& consistency = options.job.consistency();
  if (!consistency.has_prefetch()) return std::nullopt;
  return consistency.prefetch();
}

std::string EvaluationLine(SlotId slot, const EvaluationResult& result) {
  std::string line = absl::StrFormat("torchps_worker evaluation slot=%d epoch=%d loss=%.6g", slot,
                                     result.epoch(), result.loss());
  for (const MetricValue& metric : result.metric()) {
    absl::StrAppendFormat(&line, " %s=%.6g", metric.name(), metric.value());
  }
  absl::StrAppendFormat(&line, " samples=%d", result.samples());
  return line;
}

}  // namespace

StepLoop::StepLoop(Options options)
    : options_(std::move(options)),
      has_rounds_(HasRounds(options_.job.consistency())),
      collects_pushes_(CollectsPushes(options_.job.consistency())),
      local_steps_(HasLocalSteps(options_.job)),
      cursor_(options_.job.seed(), options_.train_samples, options_.job.training().shuffle()),
      progress_(options_.slot, options_.progress_interval, options_.clock->Now()),
      accounting_(options_.job.training()),
      prefetch_policy_(WantsPrefetch(options_)) {}

absl::StatusOr<std::optional<StepWork>> StepLoop::Next() {
  const ProgressTimer::Rest rest(options_.pulse);
  if (!started_) {
    if (absl::Status status = Enter(); !status.ok()) return status;
    const absl::StatusOr<bool> started = AwaitStart();
    if (!started.ok()) return started.status();
    if (!*started) {
      if (absl::Status status = Leave(); !status.ok()) return status;
      return std::nullopt;
    }
    started_ = true;
    accounting_.BeginPage(options_.clock->Now());
  }
  while (true) {
    if (options_.stop->stopped()) return absl::CancelledError(options_.stop->reason());
    if (cursor_.lease() != nullptr) {
      if (!LeaseIsUsedUp()) {
        absl::StatusOr<StepWork> step = NextOfLease();
        if (!step.ok()) return step.status();
        return *step;
      }
      if (absl::Status status = FinishPush(); !status.ok()) return status;
      // The next NextWork returns this lease. If the last push raised the count of non-finite
      // gradients to the quarantine limit, the coordinator evicts the slot and does not accept the
      // lease.
      finished_lease_ = cursor_.Finish();
    }
    const absl::StatusOr<bool> more = TakeWork();
    if (!more.ok()) return more.status();
    if (!*more) return std::nullopt;
  }
}

absl::StatusOr<bool> StepLoop::TakeWork() {
  if (collects_pushes_ && entered_) {
    if (absl::Status status = PullValues(); !status.ok()) return status;
  }
  const absl::Duration handed_in = options_.clock->Now();
  const StepFigures figures = accounting_.Figures(handed_in, options_.parameters->TakeRolledBack());
  const absl::StatusOr<NextWorkReply> work =
      options_.coordinator->NextWork(finished_lease_, figures, accounting_.lost(), idle_);
  if (!work.ok()) return work.status();
  finished_lease_ = 0;
  accounting_.BeginPage(handed_in);

  idle_ = false;
  absl::Status status;
  switch (work->work_case()) {
    case NextWorkReply::kLease:
      status = BeginLease(work->lease());
      break;
    case NextWorkReply::kEvaluateEpoch:
      status =
          Evaluate(work->evaluate_epoch(),
                   work->has_keep_model() ? std::make_optional(work->keep_model()) : std::nullopt);
      break;
    case NextWorkReply::kGoIdle:
      idle_ = true;
      status = Leave();
      break;
    case NextWorkReply::kDone:
      status = Leave();
      if (status.ok()) status = PullFinal();
      if (!status.ok()) return status;
      return false;
    case NextWorkReply::WORK_NOT_SET:
      status = absl::InternalError("the coordinator's reply contains no instruction");
  }
  if (!status.ok()) return status;
  return true;
}

absl::StatusOr<bool> StepLoop::AwaitStart() {
  bool initialized = false;
  while (true) {
    const absl::StatusOr<AwaitStartReply::Action> action =
        options_.coordinator->AwaitStart(initialized);
    if (!action.ok()) return action.status();
    switch (*action) {
      case AwaitStartReply::INITIALIZE: {
        const absl::Status status = options_.parameters->Initialize(options_.model->values());
        if (!status.ok()) return status;
        const absl::Status told = options_.hooks->OnInitialized();
        if (!told.ok()) return told;
        initialized = true;
        break;
      }
      case AwaitStartReply::START:
        return true;
      case AwaitStartReply::DONE:
        return false;
      default:
        return absl::InternalError("the coordinator's reply contains no instruction");
    }
  }
}

absl::Status StepLoop::BeginLease(const DataLease& lease) {
  if (absl::Status status = cursor_.Start(lease); !status.ok()) return status;
  // In WHOLE_BATCH and SYNC, TakeWork() pulled the values before it requested the lease, unless the
  // slot was idle. If pull_again is set, other slots made updates since that pull.
  pulled_ = collects_pushes_ && entered_ && !lease.pull_again();
  return Enter();
}

bool StepLoop::LeaseIsUsedUp() const {
  return cursor_.all_taken() || (!cursor_.nothing_taken() && accounting_.TooOftenNonfinite());
}

absl::StatusOr<StepWork> StepLoop::NextOfLease() {
  if (!pulled_) {
    if (absl::Status status = PullValues(); !status.ok()) return status;
  }
  pulled_ = false;
  const DataLease& lease = *cursor_.lease();
  const int64_t batch_size =
      lease.batch_size() > 0 ? lease.batch_size() : options_.job.training().batch_size();
  StepWork step = cursor_.Next(batch_size * PassesOfPush(options_.job));
  step_since_ = options_.clock->Now();
  step.number = steps_++;
  step.batch_size = batch_size;
  handed_out_ = GetProgress(step.progress_begin);
  step.push_step = clock_ + 1;
  step.progress = handed_out_;
  share_ = GetShare(lease, step);
  step.share = share_;
  // Local steps will change the values, so the next pull must transfer all blocks.
  if (local_steps_) held_.Clear();
  return step;
}

int64_t StepLoop::GetShare(const DataLease& lease, const StepWork& step) const {
  if (lease.reissued()) return 0;
  if (lease.share() > 0) return lease.share();
  // The job has no more samples. This share exceeds a whole batch, so the update uses the samples
  // received so far (PushFrame.share).
  if (lease.progress_end() >= 1 && options_.job.training().global_batch()) {
    return SamplesOfPush(options_.job) + 1;
  }
  const int64_t planned = step.batch_size * PassesOfPush(options_.job);
  return static_cast<int64_t>(step.samples.size()) < planned ? planned : 0;
}

absl::Status StepLoop::PullValues() {
  if (ahead_ == nullptr) {
    if (absl::Status status = FinishPush(); !status.ok()) return status;
  }
  const absl::Duration began = options_.clock->Now();
  absl::StatusOr<PullResult> pull;
  absl::Status taken;
  if (ahead_ != nullptr) {
    pull = ahead_->Finish();
    ahead_.reset();
    if (pull.ok()) taken = options_.model->UseNextValues();
    std::swap(held_, next_held_);
  } else {
    pull = PullNow();
    if (pull.ok()) taken = options_.model->ToDevice();
  }
  if (!pull.ok()) return pull.status();
  if (!taken.ok()) return taken;
  pull_time_.Add(pull->moving);
  prefetch_policy_.AddPull(pull->moving);
  const absl::Duration took = options_.clock->Now() - began;
  // Servers first park a pull and then send the values. `took` covers only the end of a prefetch.
  // So at most the part of `took` beyond the transfer time was spent parked.
  const absl::Duration waited =
      std::min(pull->parked, std::max(took - pull->moving, absl::ZeroDuration()));
  accounting_.EnterPull(waited, took - waited);
  progress_.Add(0, 0, waited);
  return absl::OkStatus();
}

absl::StatusOr<PullResult> StepLoop::PullNow() {
  absl::StatusOr<PullResult> pull = Pull(/*read_only=*/false);
  if (!pull.ok()) return pull;
  // SYNC: the slot must not push to rounds that were completed without it.
  if (has_rounds_) clock_ = std::max(clock_, pull->min_clock);
  return pull;
}

absl::StatusOr<PullResult> StepLoop::Pull(bool read_only) {
  const absl::Span<float> values = options_.model->values();
  absl::StatusOr<std::function<void(BlockId)>> on_block = options_.model->ExpectBlocks(values);
  if (!on_block.ok()) return on_block.status();
  return options_.parameters->Pull(clock_, read_only, values, &held_, *std::move(on_block));
}

void StepLoop::EndStep(Outcome outcome) {
  accounting_.EnterStep(outcome);
  if (outcome.not_finite || outcome.overflowed) {
    // No block was ready, so the push has sent no data.
    push_.reset();
    return;
  }
  stops_in_a_row_ = 0;
  // kSoon, because the caller will next wait for this push or for the next pull.
  push_->AllReady(CallLoop::Urgency::kSoon, std::exchange(outcome.absent, {}));
  pushed_ = std::move(outcome);
  pushed_part_ = cursor_.part();
  backward_time_.Add(options_.clock->Now() - transfers_since_);
  if (prefetch_policy_.AddStep(pushed_.compute_time + pushed_.data_time)) {
    options_.print(absl::StrFormat("torchps_worker prefetch_policy slot=%d on=%d pull_share=%.2f",
                                   options_.slot, prefetch_policy_.on() ? 1 : 0,
                                   prefetch_policy_.share()));
  }
}

bool StepLoop::IsTooLate() {
  if (!options_.job.consistency().stop_stale() || stops_in_a_row_ == kMaxStopsInARow) return false;
  const ProgressTimer::Rest rest(options_.pulse);
  return options_.parameters->IsTooLate(clock_ + 1);
}

void StepLoop::RestartStep() {
  ++stops_in_a_row_;
  accounting_.EnterStopped(options_.clock->Now() - step_since_);
  cursor_.Rewind();
  --steps_;
}

absl::Status StepLoop::BeginTransfers(int64_t samples) {
  const ProgressTimer::Rest rest(options_.pulse);
  if (absl::Status status = FinishPush(); !status.ok()) return status;
  transfers_since_ = options_.clock->Now();
  // If the gradient may be clipped or dropped as a whole, it was checked already. Otherwise, the
  // push checks each block.
  const TrainingSpec& training = options_.job.training();
  const bool check_finite =
      local_steps_ || (training.clip_norm() == 0 && training.nonfinite() == SKIP_BLOCK &&
                       training.precision() != TrainingSpec::FLOAT16);
  push_ = options_.parameters->BeginPush(
      clock_ + 1, samples, options_.model->gradients(), options_.model->averaged(),
      options_.model->values(), check_finite, handed_out_, options_.model->is_finite(), share_);
  if (prefetch_policy_.on()) {
    const absl::Span<float> next = options_.model->next_values();
    absl::StatusOr<std::function<void(BlockId)>> on_block = options_.model->ExpectBlocks(next);
    if (!on_block.ok()) return on_block.status();
    ahead_ = options_.parameters->BeginPull(clock_ + 1, PullKind::kAhead, next, &next_held_,
                                            LatestPull(), *std::move(on_block));
  }
  return absl::OkStatus();
}

absl::Duration StepLoop::LatestPull() const {
  return transfers_since_ +
         std::max(backward_time_.value() - pull_time_.value() * kPullMargin, absl::ZeroDuration());
}

absl::Status StepLoop::FinishPush() {
  if (push_ == nullptr) return absl::OkStatus();
  const absl::Duration began = options_.clock->Now();
  absl::StatusOr<PushResult> push = push_->Finish();
  push_.reset();
  if (!push.ok()) return push.status();
  if (absl::Status status = options_.hooks->FinishOthers(&*push); !status.ok()) return status;
  const absl::Duration now = options_.clock->Now();
  accounting_.EnterPush(pushed_, pushed_part_, *push, now - began);
  if (push->skipped) return absl::OkStatus();
  ++clock_;
  // In WHOLE_BATCH and SYNC, a push ends when the update is made, so the slot waited for other
  // slots.
  progress_.Add(pushed_.samples, pushed_.loss_sum,
                collects_pushes_ ? now - began : absl::ZeroDuration());
  const std::string line = progress_.Line(cursor_.lease()->epoch(), clock_, now);
  if (!line.empty()) options_.print(line);
  return absl::OkStatus();
}

absl::Status StepLoop::Evaluate(int epoch, const std::optional<KeepModel>& keep) {
  const absl::Duration began = options_.clock->Now();
  // Leaves the servers' clocks during the evaluation, so that other slots do not wait for this one.
  // In SYNC all slots wait at the end of the epoch anyway, and a slot that left would have to
  // rejoin the round.
  if (!has_rounds_) {
    if (absl::Status status = Leave(); !status.ok()) return status;
  }
  const absl::StatusOr<PullResult> pull = Pull(/*read_only=*/true);
  if (!pull.ok()) return pull.status();
  // If a server restarted, the pull said Hello to it, and the server would now wait for this slot.
  // In SYNC, only a slot that was idle has left the clocks.
  if (!entered_) {
    if (absl::Status status = LeaveServers(); !status.ok()) return status;
  }
  if (absl::Status status = options_.model->ToDevice(); !status.ok()) return status;
  EvaluationResult result;
  result.set_epoch(epoch);
  if (options_.job.training().evaluate() && options_.hooks->evaluates()) {
    options_.pulse->Beat();
    if (absl::Status evaluated = options_.hooks->Evaluate(&result); !evaluated.ok())
      return evaluated;
  }
  if (result.samples() > 0) options_.print(EvaluationLine(options_.slot, result));
  result.set_seconds(absl::ToDoubleSeconds(options_.clock->Now() - began));
  if (keep.has_value()) {
    if (absl::Status kept = options_.hooks->HandOver(*keep, &result); !kept.ok()) return kept;
  }
  const absl::Status reported = options_.coordinator->ReportEvaluation(result);
  // Enters the clocks before the slot gets a share of a batch. Otherwise an update might be made
  // without that share.
  return reported.ok() && collects_pushes_ && !has_rounds_ ? Enter() : reported;
}

absl::Status StepLoop::PullFinal() {
  if (!options_.hooks->wants_final_values()) return absl::OkStatus();
  const absl::StatusOr<PullResult> pull = Pull(/*read_only=*/true);
  if (!pull.ok()) return pull.status();
  if (absl::Status status = options_.model->ToDevice(); !status.ok()) return status;
  return options_.hooks->OnEnd();
}

void StepLoop::Close() {
  FinishPush().IgnoreError();
  ahead_.reset();
}

absl::Status StepLoop::Enter() {
  if (entered_) return absl::OkStatus();
  const absl::StatusOr<Step> start = options_.parameters->Hello();
  if (!start.ok()) return start.status();
  clock_ = std::max(clock_, *start);
  entered_ = true;
  return absl::OkStatus();
}

absl::Status StepLoop::Leave() {
  // Drops a prefetch whose values are not needed any more.
  ahead_.reset();
  if (!entered_) return absl::OkStatus();
  entered_ = false;
  return LeaveServers();
}

absl::Status StepLoop::LeaveServers() {
  const absl::Status left = options_.parameters->Leave();
  // An unreachable server forgets the slot when it restarts, or when the slot's lease expires.
  if (absl::IsUnavailable(left) || absl::IsDeadlineExceeded(left)) return absl::OkStatus();
  return left;
}

}  // namespace torchps
