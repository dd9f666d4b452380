#include "torchps/worker/local_steps.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "torch/utils.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/types.h"
#include "torchps/job/local_steps.h"
#include "torchps/worker/device.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

// Ignores events, because the gradient of a local step is not pushed.
class NoObserver final : public Learner::Observer {
 public:
  absl::Status BeforeGradient(absl::Duration) override { return absl::OkStatus(); }
  void OnBlock(BlockId) override {}
};

int64_t DivideRoundingUp(int64_t dividend, int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalSteps>> LocalSteps::Create(const JobSpec& job, FlatModel* model,
                                                               ComputeGradient compute,
                                                               const Clock* clock) {
  if (!model->has_one_vector()) {
    return absl::InvalidArgumentError(
        absl::StrCat("local steps need the whole model on one device, but its stages are on ",
                     DeviceNames(model->devices()), "; name one device, or remove `local`"));
  }
  const OptimizerSpec& inner = job.local().inner();
  absl::StatusOr<Schedule> schedule = Schedule::Create(inner.schedule());
  if (!schedule.ok()) return schedule.status();
  absl::StatusOr<std::unique_ptr<InnerOptimizer>> optimizer =
      InnerOptimizer::Create(inner, model->layout(), model->parameters());
  if (!optimizer.ok()) return optimizer.status();
  return absl::WrapUnique(new LocalSteps(job, *std::move(schedule), *std::move(optimizer), model,
                                         std::move(compute), clock));
}

LocalSteps::LocalSteps(const JobSpec& job, Schedule schedule,
                       std::unique_ptr<InnerOptimizer> optimizer, FlatModel* model,
                       ComputeGradient compute, const Clock* clock)
    : job_(job),
      schedule_(std::move(schedule)),
      optimizer_(std::move(optimizer)),
      model_(model),
      compute_(std::move(compute)),
      clock_(clock) {}

absl::StatusOr<Learner::Gradient> LocalSteps::Compute(const StepWork& step,
                                                      Learner::Observer* observer) {
  try {
    const absl::Duration began = clock_->Now();
    const auto samples = static_cast<int64_t>(step.samples.size());
    const int64_t of_step = SamplesOfStep(samples);
    DropAnchor();
    Learner::Gradient sum;
    sum.samples = samples;
    int64_t taken = 0;
    int64_t with_loss = 0;
    for (int64_t begin = 0; begin < samples; begin += of_step) {
      NoObserver nobody;
      StepWork local = step;
      local.samples = step.samples.subspan(begin, of_step);
      const int64_t end = begin + static_cast<int64_t>(local.samples.size());
      local.upcoming = {step.samples.data() + end,
                        static_cast<size_t>(samples - end) + step.upcoming.size()};
      local.number = steps_++;
      local.position = step.position + begin;
      local.batch_size = DivideRoundingUp(of_step, job_.training().accumulate());
      absl::StatusOr<Learner::Gradient> gradient = compute_(local, &nobody);
      if (!gradient.ok()) return gradient.status();
      if (std::isfinite(gradient->loss_sum)) {
        sum.loss_sum += gradient->loss_sum;
        with_loss += gradient->samples;
      }
      sum.data_time += gradient->data_time;
      sum.overflows += gradient->overflows;
      if (gradient->finite == Finite::kOverflow) continue;
      if (gradient->finite == Finite::kNo) {
        ++sum.skipped_steps;
        continue;
      }
      const double progress = step.progress_begin + (step.progress_end - step.progress_begin) *
                                                        static_cast<double>(begin) /
                                                        static_cast<double>(samples);
      optimizer_->Step(schedule_.Factor(/*applied=*/0, GetProgress(progress)), gradient->absent);
      model_->TakeChanges();
      sum.absent =
          ++taken == 1 ? std::move(gradient->absent) : RunsInBoth(sum.absent, gradient->absent);
    }
    // For local steps whose loss is not finite, assumes the mean loss of the others.
    sum.loss_sum *= static_cast<double>(samples) / static_cast<double>(with_loss);
    const bool must_end = sum.skipped_steps > 0 && job_.training().nonfinite() == STOP_JOB;
    if (must_end || (taken == 0 && sum.skipped_steps > 0)) {
      sum.finite = Finite::kNo;
    } else {
      sum.finite = taken == 0 ? Finite::kOverflow : Finite::kUnknown;
    }
    const absl::Duration told = clock_->Now();
    const absl::Status may_write = observer->BeforeGradientAndBlocks(told - began - sum.data_time);
    if (!may_write.ok()) return may_write;
    const absl::Duration observed = clock_->Now() - told;
    if (absl::Status status = WriteDifference(); !status.ok()) return status;
    sum.compute_time = clock_->Now() - began - sum.data_time - observed;
    return sum;
  } catch (...) {
    return ThrownError("local steps");
  }
}

int64_t LocalSteps::SamplesOfStep(int64_t samples) const {
  const int64_t whole = EqualBatch(job_) * job_.training().accumulate();
  const int64_t steps = std::max<int64_t>((samples + whole / 2) / whole, 1);
  return DivideRoundingUp(samples, steps);
}

void LocalSteps::DropAnchor() {
  const torch::NoGradGuard no_grad;
  const torch::Tensor values = model_->device_values();
  if (anchor_.defined()) {
    anchor_.copy_(values);
  } else {
    anchor_ = values.clone();
  }
}

absl::Status LocalSteps::WriteDifference() {
  const torch::NoGradGuard no_grad;
  torch::Tensor difference = model_->device_gradients();
  torch::sub_out(difference, anchor_, model_->device_values());
  return model_->ToHost();
}

}  // namespace torchps
