#include "torchps/worker/slot/run_worker.h"

#include <functional>
#include <memory>
#include <utility>

#include "torchps/common/stop_latch.h"
#include "torchps/data/dataset.h"
#include "torchps/job/local_steps.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/worker/evaluation.h"
#include "torchps/worker/local_steps.h"
#include "torchps/worker/model_use.h"
#include "torchps/worker/slot/dry_run.h"
#include "torchps/worker/slot/model_handover.h"
#include "torchps/worker/torch_error.h"
#include "torchps/worker/trainer.h"

namespace torchps {
namespace {

// Runs the user's code, which may throw.
absl::Status Guarded(const char* what, const std::function<void()>& run) {
  try {
    run();
    return absl::OkStatus();
  } catch (...) {
    return ThrownError(what);
  }
}

// Converts exceptions of `compute` to a status. If an exception escaped, a push that has begun
// would wait for blocks forever.
ComputeGradient ThrowingNothing(ComputeGradient compute) {
  return
      [compute = std::move(compute)](
          const StepWork& step, Learner::Observer* observer) -> absl::StatusOr<Learner::Gradient> {
        try {
          return compute(step, observer);
        } catch (...) {
          return ThrownError("a training step");
        }
      };
}

// Evaluates the task's module, and calls the task's callbacks. Borrows everything.
class TaskHooks final : public ModelHandover {
 public:
  TaskHooks(const Task& task, WorkerSlot* slot, const StopLatch* stop)
      : ModelHandover(slot->HandoverOptions()), task_(task), slot_(*slot), stop_(stop) {}

  bool evaluates() const override { return true; }
  absl::Status Evaluate(EvaluationResult* result) override {
    const absl::StatusOr<Evaluation> evaluation =
        torchps::Evaluate(task_, task_.data().test.get(), slot_.model()->device(),
                          slot_.job().training().precision(), stop_);
    if (!evaluation.ok()) return evaluation.status();
    SetEvaluation(*evaluation, result);
    const auto& on_epoch = task_.callbacks().on_epoch;
    if (evaluation->samples == 0 || on_epoch == nullptr) return absl::OkStatus();
    return Guarded("on_epoch", [&] { on_epoch(result->epoch(), *evaluation); });
  }

  bool wants_final_values() const override { return task_.callbacks().on_end != nullptr; }
  absl::Status OnEnd() override {
    return Guarded("on_end", [this] { task_.callbacks().on_end(task_.module()); });
  }

 private:
  const Task& task_;
  WorkerSlot& slot_;
  const StopLatch* const stop_;
};

absl::StatusOr<ComputeGradient> ComputeAlone(const Task& task, const Learner::Options& options,
                                             WorkerSlot* slot) {
  slot->PreparePushesOnDevice();
  auto learner = std::make_shared<Learner>(task, slot->model(), options);
  return ComputeGradient([learner](const StepWork& step, Learner::Observer* observer) {
    return learner->Compute(step, observer);
  });
}

absl::Status Train(const Task& task, const WorkerOptions& options, const MakeCompute& make_compute,
                   WorkerSlot* slot) {
  Learner::Options learning;
  learning.training = slot->job().training();
  learning.block_map = &slot->block_map();
  learning.clock = options.clock;
  learning.seed = slot->job().seed();
  learning.loader_threads = options.loader_threads;
  learning.device_factory = options.device_factory;
  learning.micro_batches = options.micro_batches;
  learning.local_steps = HasLocalSteps(slot->job());
  learning.observer = slot;
  absl::StatusOr<ComputeGradient> compute = make_compute(task, learning, slot);
  if (!compute.ok()) return compute.status();
  if (learning.local_steps) {
    absl::StatusOr<std::shared_ptr<LocalSteps>> local =
        LocalSteps::Create(slot->job(), slot->model(), *std::move(compute), options.clock);
    if (!local.ok()) return local.status();
    compute = [local = *std::move(local)](const StepWork& step, Learner::Observer* observer) {
      return local->Compute(step, observer);
    };
  }

  SimulatedSlowdown handicap = slot->MakeHandicap();
  Trainer::Options training;
  training.compute = ThrowingNothing(*std::move(compute));
  TaskHooks hooks(task, slot, options.stop);
  training.loop = slot->MakeLoop(&hooks, /*may_prefetch=*/true);
  training.handicap = &handicap;
  if (const auto& on_step = task.callbacks().on_step; on_step != nullptr) {
    training.on_step = [&on_step](int64_t number, const Learner::Gradient& gradient) {
      const double loss = gradient.loss_sum / static_cast<double>(gradient.samples);
      return Guarded("on_step", [&] { on_step({number, gradient.samples, loss}); });
    };
  }
  return Trainer(std::move(training)).Run();
}

}  // namespace

absl::Status RunWorker(const Task& task, WorkerOptions options, const MakeCompute& make_compute) {
  if (!task.status().ok()) return task.status();
  if (task.data().train == nullptr || task.data().train->size() == 0) {
    return absl::InvalidArgumentError("the task has no training samples");
  }
  const absl::Status metrics = CheckMetrics(task.objective(), options.job.training().best_by());
  if (!metrics.ok()) return metrics;
  if (task.objective().weighted_loss != nullptr && HasLocalSteps(options.job)) {
    return absl::InvalidArgumentError(
        "the objective has a WeightedLoss, which local steps do not support; expected a loss "
        "that is the mean over the batch's samples");
  }
  if (options.dry_run) return DryRun(task, options);
  const DataSource& data = task.data();
  DataFingerprint fingerprint;
  const absl::Status looked = Guarded("Fingerprint", [&] { fingerprint = GetFingerprint(data); });
  if (!looked.ok()) return looked;
  const bool is_first = options.slot <= 0;
  const absl::StatusOr<Evaluation> tried = TryOut(task, options.job, [&](const std::string& line) {
    if (is_first) options.print(line);
  });
  if (!tried.ok()) return tried.status();
  const absl::StatusOr<std::unique_ptr<WorkerSlot>> slot = WorkerSlot::Join(
      task.module(), {data.train->size(), data.description, data.Metadata(), fingerprint}, options);
  if (!slot.ok()) return slot.status();
  const MakeCompute& make = make_compute != nullptr ? make_compute : ComputeAlone;
  absl::Status trained;
  try {
    trained = Train(task, options, make, slot->get());
  } catch (...) {
    // For example, the module's train() may throw.
    trained = ThrownError("training");
  }
  return (*slot)->Leave(trained);
}

}  // namespace torchps
