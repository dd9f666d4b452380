#include "worker/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/split_mix64.h"

namespace torchps {
namespace {

// Weight of the newest in what the last ones took.
constexpr double kNewest = 0.2;
// Of what a pull is expected to take, what is set aside for it: pulls vary more than passes do.
constexpr double kPullMargin = 3;

absl::Duration Blend(absl::Duration known, absl::Duration newest) {
  if (known == absl::ZeroDuration()) return newest;
  return known * (1 - kNewest) + newest * kNewest;
}

std::string EvaluationLine(SlotId slot, const EvaluationResult& result) {
  std::string line = absl::StrFormat("torchps_worker evaluation slot=%d epoch=%d loss=%.4f", slot,
                                     result.epoch(), result.loss());
  for (const MetricValue& metric : result.metric()) {
    absl::StrAppendFormat(&line, " %s=%.4f", metric.name(), metric.value());
  }
  absl::StrAppendFormat(&line, " samples=%d", result.samples());
  return line;
}

}  // namespace

class Trainer::StepObserver final : public Learner::Observer {
 public:
  StepObserver(Trainer* trainer, int64_t samples) : trainer_(trainer), samples_(samples) {}

  absl::Status BeforeGradient() override { return trainer_->BeginTransfers(samples_); }
  void OnBlock(BlockId block) override { trainer_->push_->BlockReady(block); }

 private:
  Trainer* const trainer_;
  const int64_t samples_;
};

Trainer::Trainer(Options options)
    : options_(std::move(options)),
      sync_(options_.job.consistency().mode() == ConsistencySpec::SYNC),
      prefetch_(options_.job.consistency().prefetch()),
      positions_(options_.job.seed(), options_.train_samples, options_.job.training().shuffle()),
      progress_(options_.slot, options_.progress_interval, options_.clock->Now()) {}

absl::Status Trainer::Run() {
  const absl::Status status = Work();
  // Also after a stop: a push that has begun is ended cleanly, in the grace that it has.
  FinishPush().IgnoreError();
  ahead_.reset();
  return status;
}

absl::Status Trainer::Work() {
  if (absl::Status status = Enter(); !status.ok()) return status;
  const absl::StatusOr<bool> started = AwaitStart();
  if (!started.ok()) return started.status();
  if (!*started) return Leave();

  uint64_t finished_lease = 0;
  bool idle = false;
  figures_since_ = options_.clock->Now();
  while (true) {
    if (options_.stop->stopped()) return absl::CancelledError(options_.stop->reason());
    if (sync_ && entered_) {
      if (absl::Status status = PullValues(); !status.ok()) return status;
    }
    const absl::Duration handed_in = options_.clock->Now();
    const double accounted = figures_.compute_seconds() + figures_.push_seconds() +
                             figures_.pull_seconds() + figures_.wait_seconds() +
                             figures_.data_seconds();
    figures_.set_other_seconds(
        std::max(0.0, absl::ToDoubleSeconds(handed_in - figures_since_) - accounted));
    const RollbackBooks::Lost lost = options_.parameters->TakeRolledBack();
    figures_.set_rolled_back_blocks(lost.blocks);
    figures_.set_rolled_back_pushes(lost.pushes);
    figures_.set_nonfinite_in_a_row(nonfinite_in_a_row_);
    const absl::StatusOr<NextWorkReply> work =
        options_.coordinator->NextWork(finished_lease, figures_, idle);
    if (!work.ok()) return work.status();
    finished_lease = 0;
    figures_.Clear();
    figures_since_ = handed_in;

    absl::Status status;
    switch (work->work_case()) {
      case NextWorkReply::kLease:
        idle = false;
        status = TrainOn(work->lease());
        finished_lease = work->lease().id();
        break;
      case NextWorkReply::kEvaluateEpoch:
        idle = false;
        status = Evaluate(work->evaluate_epoch(), work->has_keep_model()
                                                      ? absl::make_optional(work->keep_model())
                                                      : absl::nullopt);
        break;
      case NextWorkReply::kGoIdle:
        idle = true;
        status = Leave();
        break;
      case NextWorkReply::kDone:
        status = Leave();
        return status.ok() ? TakeLearnt() : status;
      case NextWorkReply::WORK_NOT_SET:
        status = absl::InternalError("the coordinator answered without telling what to do");
    }
    if (!status.ok()) return status;
  }
}

absl::StatusOr<bool> Trainer::AwaitStart() {
  bool initialized = false;
  while (true) {
    const absl::StatusOr<AwaitStartReply::Action> action =
        options_.coordinator->AwaitStart(initialized);
    if (!action.ok()) return action.status();
    switch (*action) {
      case AwaitStartReply::INITIALIZE: {
        const absl::Status status = options_.parameters->Initialize(options_.model->values());
        if (!status.ok()) return status;
        const absl::Status handed_over = options_.handover->HandOverConstants();
        if (!handed_over.ok()) return handed_over;
        initialized = true;
        break;
      }
      case AwaitStartReply::START:
        return true;
      case AwaitStartReply::DONE:
        return false;
      default:
        return absl::InternalError("the coordinator answered without telling what to do");
    }
  }
}

absl::Status Trainer::TrainOn(const DataLease& lease) {
  const absl::Span<const int64_t> samples =
      positions_.Samples(lease.epoch(), lease.begin(), lease.end());
  if (samples.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the coordinator handed out positions ", lease.begin(), " to ", lease.end(), " of epoch ",
        lease.epoch(), ", but this worker has ", options_.train_samples, " training samples"));
  }
  epoch_ = lease.epoch();
  const TrainingSpec& training = options_.job.training();
  const size_t step_samples =
      static_cast<size_t>(training.batch_size()) * std::max(training.accumulate(), 1);
  // In SYNC the values were pulled before the lease was asked for, unless it ends an idle time.
  bool pulled = sync_ && entered_;
  if (absl::Status status = Enter(); !status.ok()) return status;
  for (size_t begin = 0; begin < samples.size(); begin += step_samples) {
    if (options_.stop->stopped()) return absl::CancelledError(options_.stop->reason());
    if (!pulled) {
      if (absl::Status status = PullValues(); !status.ok()) return status;
    }
    pulled = false;
    absl::Status status = TrainStep({samples.subspan(begin, step_samples), pushes_,
                                     AugmentationSeed(lease, static_cast<int64_t>(begin))});
    if (!status.ok()) return status;
    // The coordinator decides what becomes of this slot, and does not count the lease as used.
    if (TooOftenNonfinite()) break;
  }
  return FinishPush();
}

absl::Status Trainer::PullValues() {
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
    pull = options_.parameters->Pull(clock_, /*read_only=*/false, options_.model->values(), &held_);
    if (pull.ok()) taken = options_.model->ToDevice();
  }
  if (!pull.ok()) return pull.status();
  if (!taken.ok()) return taken;
  // In SYNC the rounds completed without this slot, as a straggler, are rounds it will not push to.
  if (sync_) clock_ = std::max(clock_, pull->floor);
  pull_time_ = Blend(pull_time_, pull->moving);
  const absl::Duration took = options_.clock->Now() - began;
  // A pull is parked first and moves values then: what was spent here was the end of it.
  const absl::Duration waited =
      std::min(pull->parked, std::max(took - pull->moving, absl::ZeroDuration()));
  const absl::Duration pulled = took - waited;
  figures_.set_wait_seconds(figures_.wait_seconds() + absl::ToDoubleSeconds(waited));
  figures_.set_pull_seconds(figures_.pull_seconds() + absl::ToDoubleSeconds(pulled));
  progress_.Add(0, 0, waited);
  return absl::OkStatus();
}

uint64_t Trainer::AugmentationSeed(const DataLease& lease, int64_t begin) const {
  // By the sample's position, so that it does not matter which slot takes it.
  uint64_t state = options_.job.seed() ^ (static_cast<uint64_t>(lease.epoch()) << 40) ^
                   static_cast<uint64_t>(lease.begin() + begin);
  return SplitMix64(state);
}

absl::Status Trainer::TrainStep(const Learner::Step& step) {
  StepObserver observer(this, static_cast<int64_t>(step.samples.size()));
  absl::StatusOr<Learner::Gradient> gradient = options_.learner->Compute(step, &observer);
  if (!gradient.ok()) {
    // Some of its blocks will never be ready.
    push_.reset();
    return gradient.status();
  }
  if (options_.slow > 1) {
    const absl::Duration stretch = gradient->compute_time * (options_.slow - 1);
    options_.stop->WaitFor(stretch);
    gradient->compute_time += stretch;
  }
  figures_.set_compute_seconds(figures_.compute_seconds() +
                               absl::ToDoubleSeconds(gradient->compute_time));
  figures_.set_data_seconds(figures_.data_seconds() + absl::ToDoubleSeconds(gradient->data_time));
  figures_.set_samples(figures_.samples() + gradient->samples);

  if (gradient->finite == Learner::Gradient::kNotFinite) {
    // No block of it is ready, so nothing was sent.
    push_.reset();
    figures_.set_skipped_nonfinite(figures_.skipped_nonfinite() + 1);
    ++nonfinite_in_a_row_;
    return absl::OkStatus();
  }
  // What follows waits, for this push or for the next pull.
  push_->AllReady(CallLoop::Urgency::kSoon);
  pushed_ = *gradient;
  backward_time_ = Blend(backward_time_, options_.clock->Now() - transfers_since_);
  return options_.on_step(pushes_ + 1, *gradient);
}

absl::Status Trainer::BeginTransfers(int64_t samples) {
  if (absl::Status status = FinishPush(); !status.ok()) return status;
  transfers_since_ = options_.clock->Now();
  // A gradient that is to be clipped, or dropped as a whole, has been looked at before any of it is
  // sent.
  const TrainingSpec& training = options_.job.training();
  const bool check_finite = training.clip_norm() == 0 && training.nonfinite() == SKIP_BLOCK;
  push_ = options_.parameters->BeginPush(clock_ + 1, samples, options_.model->gradients(),
                                         options_.model->averaged(), check_finite);
  if (prefetch_) {
    ahead_ = options_.parameters->BeginPull(
        clock_ + 1, PullKind::kAhead, options_.model->next_values(), &next_held_, LatestPull());
  }
  return absl::OkStatus();
}

absl::Duration Trainer::LatestPull() const {
  return transfers_since_ +
         std::max(backward_time_ - pull_time_ * kPullMargin, absl::ZeroDuration());
}

absl::Status Trainer::FinishPush() {
  if (push_ == nullptr) return absl::OkStatus();
  const absl::Duration began = options_.clock->Now();
  const absl::StatusOr<PushResult> push = push_->Finish();
  push_.reset();
  if (!push.ok()) return push.status();
  const absl::Duration now = options_.clock->Now();
  figures_.set_push_seconds(figures_.push_seconds() + absl::ToDoubleSeconds(now - began));
  if (push->skipped) {
    figures_.set_skipped_nonfinite(figures_.skipped_nonfinite() + 1);
    ++nonfinite_in_a_row_;
    return absl::OkStatus();
  }
  ++clock_;
  ++pushes_;
  figures_.set_pushes(figures_.pushes() + 1);
  // Of a step with a withheld block it may be anything.
  const double loss_sum = std::isfinite(pushed_.loss_sum) ? pushed_.loss_sum : 0;
  figures_.set_loss_sum(figures_.loss_sum() + loss_sum);
  // Stale or late gradients are part of the contract: the next pull brings newer values.
  if (push->verdicts.rejected() + push->verdicts.late() > 0) {
    figures_.set_rejected_pushes(figures_.rejected_pushes() + 1);
  }
  progress_.Add(pushed_.samples, loss_sum, absl::ZeroDuration());
  const std::string line = progress_.Line(epoch_, clock_, now);
  if (!line.empty()) options_.print(line);
  nonfinite_in_a_row_ = push->verdicts.withheld() > 0 ? nonfinite_in_a_row_ + 1 : 0;
  return absl::OkStatus();
}

bool Trainer::TooOftenNonfinite() const {
  const TrainingSpec& training = options_.job.training();
  const int limit = training.nonfinite() == STOP_JOB ? 1 : training.quarantine_after();
  return limit > 0 && nonfinite_in_a_row_ >= limit;
}

absl::Status Trainer::Evaluate(int epoch, const absl::optional<KeepModel>& keep) {
  const absl::Duration began = options_.clock->Now();
  // No slot should wait for one that computes no gradient. In SYNC the epoch's end is where all
  // wait for all anyway, and a slot that left would have to find its round again.
  if (!sync_) {
    if (absl::Status status = Leave(); !status.ok()) return status;
  }
  const absl::StatusOr<PullResult> pull =
      options_.parameters->Pull(clock_, /*read_only=*/true, options_.model->values(), &held_);
  if (!pull.ok()) return pull.status();
  // A server that was restarted meanwhile was greeted, and would wait for this slot; in SYNC that
  // is one that had nothing to do and was outside already.
  if (!entered_) {
    if (absl::Status status = LeaveServers(); !status.ok()) return status;
  }
  if (absl::Status status = options_.model->ToDevice(); !status.ok()) return status;
  absl::StatusOr<Learner::Evaluation> evaluation = Learner::Evaluation();
  if (options_.job.training().evaluate()) evaluation = options_.learner->Evaluate();
  if (!evaluation.ok()) return evaluation.status();

  EvaluationResult result;
  result.set_epoch(epoch);
  result.set_samples(evaluation->samples);
  if (evaluation->samples > 0) {
    result.set_loss(evaluation->loss);
    for (const MetricValue& metric : evaluation->metrics) *result.add_metric() = metric;
    options_.print(EvaluationLine(options_.slot, result));
    if (absl::Status told = options_.on_epoch(result); !told.ok()) return told;
  }
  result.set_seconds(absl::ToDoubleSeconds(options_.clock->Now() - began));
  if (keep.has_value()) {
    if (absl::Status kept = options_.handover->HandOver(result, *keep); !kept.ok()) return kept;
  }
  return options_.coordinator->ReportEvaluation(result);
}

absl::Status Trainer::TakeLearnt() {
  if (options_.on_end == nullptr) return absl::OkStatus();
  const absl::StatusOr<PullResult> pull =
      options_.parameters->Pull(clock_, /*read_only=*/true, options_.model->values(), &held_);
  if (!pull.ok()) return pull.status();
  if (absl::Status status = options_.model->ToDevice(); !status.ok()) return status;
  return options_.on_end();
}

absl::Status Trainer::Enter() {
  if (entered_) return absl::OkStatus();
  const absl::StatusOr<Step> start = options_.parameters->Hello();
  if (!start.ok()) return start.status();
  clock_ = std::max(clock_, *start);
  entered_ = true;
  return absl::OkStatus();
}

absl::Status Trainer::Leave() {
  // Values that will not be computed with.
  ahead_.reset();
  if (!entered_) return absl::OkStatus();
  entered_ = false;
  return LeaveServers();
}

absl::Status Trainer::LeaveServers() {
  const absl::Status left = options_.parameters->Leave();
  // A server that is away just now has forgotten this slot when it comes back, or lets its lease
  // run out.
  if (absl::IsUnavailable(left) || absl::IsDeadlineExceeded(left)) return absl::OkStatus();
  return left;
}

}  // namespace torchps
