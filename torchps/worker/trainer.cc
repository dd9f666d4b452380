#include "torchps/worker/trainer.h"

#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"

namespace torchps {
class Trainer::StepObserver final : public Learner::Observer {
 public:
  StepObserver(StepLoop* loop, SimulatedSlowdown* handicap, int64_t samples)
      : loop_(loop), handicap_(handicap), samples_(samples) {}

  absl::Status BeforeGradient(absl::Duration compute_time) override {
    handicap_->HoldForward(samples_, compute_time);
    is_too_late_ = loop_->IsTooLate();
    if (is_too_late_) return absl::CancelledError("the gradient would come too late");
    return absl::OkStatus();
  }
  absl::Status BeforeBlocks() override {
    has_begun_ = true;
    return loop_->BeginTransfers(samples_);
  }
  void OnWeight(double weight) override {
    loop_->SetWeight(weight);
    has_weight_ = true;
  }
  void OnBlock(BlockId block) override {
    if (!handicap_->any()) loop_->BlockReady(block);
  }
  // True if the step ended before its gradient was computed, because the push would be late or
  // rejected.
  bool is_too_late() const { return is_too_late_; }
  // True if the step's push may have begun. Otherwise, the previous push may still be in flight.
  bool has_begun() const { return has_begun_; }
  bool has_weight() const { return has_weight_; }

 private:
  StepLoop* const loop_;
  SimulatedSlowdown* const handicap_;
  const int64_t samples_;
  bool is_too_late_ = false;
  bool has_begun_ = false;
  bool has_weight_ = false;
};

absl::Status Trainer::Run() {
  const auto close = absl::MakeCleanup([this] { options_.loop->Close(); });
  while (true) {
    const absl::StatusOr<std::optional<StepWork>> step = options_.loop->Next();
    if (!step.ok()) return step.status();
    if (!step->has_value()) return absl::OkStatus();
    if (absl::Status status = TrainStep(**step); !status.ok()) return status;
  }
}

absl::Status Trainer::TrainStep(const StepWork& step) {
  StepObserver observer(options_.loop, options_.handicap,
                        static_cast<int64_t>(step.samples.size()));
  absl::StatusOr<Learner::Gradient> gradient = options_.compute(step, &observer);
  if (observer.is_too_late()) {
    options_.loop->RestartStep();
    return absl::OkStatus();
  }
  if (!gradient.ok()) {
    if (observer.has_begun()) options_.loop->DropStep();
    return gradient.status();
  }
  if (gradient->weight.has_value() && !observer.has_weight()) {
    options_.loop->SetWeight(*gradient->weight);
  }
  gradient->compute_time +=
      options_.handicap->Hold(gradient->samples, gradient->data_time, gradient->compute_time);
  StepLoop::Outcome outcome;
  outcome.samples = gradient->samples;
  outcome.loss_sum = gradient->loss_sum;
  outcome.not_finite = gradient->finite == Finite::kNo;
  outcome.overflowed = gradient->finite == Finite::kOverflow;
  outcome.skipped_steps = gradient->skipped_steps;
  outcome.overflows = gradient->overflows;
  outcome.absent = std::exchange(gradient->absent, {});
  outcome.data_time = gradient->data_time;
  outcome.compute_time = gradient->compute_time;
  options_.loop->EndStep(std::move(outcome));
  return options_.on_step(step.number + 1, *gradient);
}

}  // namespace torchps
