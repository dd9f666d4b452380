#include "torchps/worker/loop/step_accounting.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"

namespace torchps {

Progress::Progress(SlotId slot, absl::Duration interval, absl::Duration now)
    : slot_(slot), interval_(interval), since_(now) {}

void Progress::Add(int64_t samples, double loss_sum, absl::Duration waited) {
  samples_ += samples;
  if (std::isfinite(loss_sum)) {
    loss_sum_ += loss_sum;
    loss_samples_ += samples;
  }
  waited_ += waited;
}

std::string Progress::Line(int epoch, Step step, absl::Duration now) {
  const double seconds = absl::ToDoubleSeconds(now - since_);
  if (now - since_ < interval_ || samples_ == 0 || seconds <= 0) return "";
  const double loss = loss_samples_ > 0 ? loss_sum_ / static_cast<double>(loss_samples_)
                                        : std::numeric_limits<double>::quiet_NaN();
  std::string line = absl::StrFormat(
      "torchps_worker progress slot=%d epoch=%d step=%d loss=%.6g accuracy=- samples_per_s=%.0f "
      "wait_share=%.2f",
      slot_, epoch, step, loss, static_cast<double>(samples_) / seconds,
      absl::ToDoubleSeconds(waited_) / seconds);
  since_ = now;
  samples_ = 0;
  loss_samples_ = 0;
  loss_sum_ = 0;
  waited_ = absl::ZeroDuration();
  return line;
}

namespace {

// True if each block of the push was rejected or late, apart from blocks withheld because they were
// not finite.
bool ChangedNothing(const VerdictCounts& verdicts) {
  return verdicts.rejected() + verdicts.late() > 0 && verdicts.accepted() + verdicts.scaled() == 0;
}

}  // namespace

StepAccounting::StepAccounting(const TrainingSpec& training)
    : max_nonfinite_in_a_row_(training.nonfinite() == STOP_JOB ? 1 : training.quarantine_after()) {}

void StepAccounting::BeginPage(absl::Duration now) {
  figures_.Clear();
  lost_.clear();
  since_ = now;
}

void StepAccounting::EnterPull(absl::Duration waited, absl::Duration pulled) {
  figures_.set_wait_seconds(figures_.wait_seconds() + absl::ToDoubleSeconds(waited));
  figures_.set_pull_seconds(figures_.pull_seconds() + absl::ToDoubleSeconds(pulled));
}

void StepAccounting::EnterStopped(absl::Duration computed) {
  figures_.set_stopped_steps(figures_.stopped_steps() + 1);
  figures_.set_compute_seconds(figures_.compute_seconds() + absl::ToDoubleSeconds(computed));
}

void StepAccounting::EnterStep(const Outcome& step) {
  figures_.set_compute_seconds(figures_.compute_seconds() +
                               absl::ToDoubleSeconds(step.compute_time));
  figures_.set_data_seconds(figures_.data_seconds() + absl::ToDoubleSeconds(step.data_time));
  figures_.set_samples(figures_.samples() + step.samples);
  figures_.set_overflows(figures_.overflows() + step.overflows);
  if (step.not_finite || step.overflowed) AddLoss(step);
  if (step.overflowed) return;
  if (step.not_finite) {
    figures_.set_skipped_nonfinite(figures_.skipped_nonfinite() + 1);
    ++nonfinite_in_a_row_;
    return;
  }
  figures_.set_skipped_nonfinite(figures_.skipped_nonfinite() + step.skipped_steps);
}

void StepAccounting::EnterPush(const Outcome& step, const LeaseRange& part, const PushResult& push,
                               absl::Duration took) {
  figures_.set_push_seconds(figures_.push_seconds() + absl::ToDoubleSeconds(took));
  if (push.skipped) {
    AddLoss(step);
    figures_.set_skipped_nonfinite(figures_.skipped_nonfinite() + 1);
    ++nonfinite_in_a_row_;
    return;
  }
  ++pushes_;
  figures_.set_pushes(figures_.pushes() + 1);
  // Rejected and late gradients are not errors: the slot continues with the newer values of the
  // next pull.
  if (NotApplied(push.verdicts) > 0) {
    figures_.set_rejected_pushes(figures_.rejected_pushes() + 1);
  }
  if (ChangedNothing(push.verdicts)) {
    lost_.push_back(part);
    figures_.set_samples(figures_.samples() - step.samples);
    figures_.set_lost_samples(figures_.lost_samples() + step.samples);
  } else {
    AddLoss(step);
  }
  nonfinite_in_a_row_ = push.verdicts.withheld() > 0 ? nonfinite_in_a_row_ + 1 : 0;
}

void StepAccounting::AddLoss(const Outcome& step) {
  if (std::isfinite(step.loss_sum)) {
    figures_.set_loss_sum(figures_.loss_sum() + step.loss_sum);
  } else {
    figures_.set_samples_without_loss(figures_.samples_without_loss() + step.samples);
  }
}

StepFigures StepAccounting::Figures(absl::Duration now,
                                    const RollbackAccounting::Lost& rolled_back) const {
  StepFigures figures = figures_;
  const double accounted = figures.compute_seconds() + figures.push_seconds() +
                           figures.pull_seconds() + figures.wait_seconds() + figures.data_seconds();
  figures.set_other_seconds(std::max(0.0, absl::ToDoubleSeconds(now - since_) - accounted));
  figures.set_rolled_back_blocks(rolled_back.blocks);
  figures.set_rolled_back_pushes(rolled_back.pushes);
  figures.set_nonfinite_in_a_row(nonfinite_in_a_row_);
  return figures;
}

bool StepAccounting::TooOftenNonfinite() const {
  return max_nonfinite_in_a_row_ > 0 && nonfinite_in_a_row_ >= max_nonfinite_in_a_row_;
}

}  // namespace torchps
