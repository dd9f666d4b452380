#include "worker/slot/dry_run.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/block_map.h"
#include "job/local_steps.h"
#include "job/parameter_groups.h"
#include "worker/device.h"
#include "worker/flat_model.h"
#include "worker/learner.h"
#include "worker/loop/lease_cursor.h"
#include "worker/slot/try_out.h"
#include "worker/slot/worker_slot.h"
#include "worker/training_observer.h"

namespace torchps {
namespace {

class NobodyObserves final : public Learner::Observer {
 public:
  absl::Status BeforeGradient(absl::Duration) override { return absl::OkStatus(); }
  void OnBlock(BlockId) override {}
};

class Logger final : public TrainingObserver {
 public:
  explicit Logger(const WorkerOptions* options) : options_(*options) {}
  void Log(const std::string& line) override { options_.log(line); }

 private:
  const WorkerOptions& options_;
};

std::string LossLine(const char* what, const Evaluation& evaluation) {
  std::string line =
      absl::StrFormat("dry run: loss %.4g on %d %s", evaluation.loss, evaluation.samples, what);
  for (const Evaluation::Value& metric : evaluation.metrics) {
    absl::StrAppendFormat(&line, ", %s %.4g", metric.name, metric.value);
  }
  return line;
}

// Computes the first step of a worker that gets an equal share of the batch.
absl::StatusOr<Learner::Gradient> FirstGradient(const Task& task, const WorkerOptions& options) {
  const JobSpec& job = options.job;
  const absl::StatusOr<std::unique_ptr<FlatModel>> model = FlatModel::Create(
      task.module(), DeviceOfSlot(options.device, std::max(options.slot, 0)),
      [&job](const std::string& name) { return GetGroup(job.optimizer(), name); });
  if (!model.ok()) return model.status();
  const absl::StatusOr<BlockMap> map =
      BlockMap::Create((*model)->layout(), job.wire().block_bytes(), /*servers=*/1);
  if (!map.ok()) return map.status();
  Learner::Options learning;
  learning.training = job.training();
  learning.block_map = &*map;
  learning.clock = options.clock;
  learning.seed = job.seed();
  Logger logger(&options);
  learning.observer = &logger;
  Learner learner(task, model->get(), learning);

  const int64_t all = task.data().train->size();
  const int64_t batch = std::min<int64_t>(EqualBatch(job), all);
  EpochPositions positions(job.seed(), all);
  StepWork step;
  step.samples = positions.Samples(/*epoch=*/1, 0, batch);
  step.epoch = 1;
  step.batch_size = batch;
  NobodyObserves observer;
  return learner.Compute(step, &observer);
}

}  // namespace

absl::Status DryRun(const Task& task, const WorkerOptions& options) {
  if (absl::Status status = LoadInitialState(task.module(), options); !status.ok()) return status;
  const absl::StatusOr<Evaluation> tried = TryOut(task, options.job, options.print);
  if (!tried.ok()) return tried.status();
  const absl::StatusOr<Learner::Gradient> gradient = FirstGradient(task, options);
  if (!gradient.ok()) return gradient.status();
  Evaluation trained;
  trained.samples = gradient->samples;
  trained.loss = gradient->loss_sum / static_cast<double>(gradient->samples);
  if (!std::isfinite(trained.loss)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the loss of the first batch is ", trained.loss, "; expected a finite number: look for ",
        "values that are not finite in the data, and for log(0) or a division by 0 in the loss"));
  }
  if (!task.data().description.empty()) {
    options.print(absl::StrCat("data: ", task.data().description));
  }
  options.print(LossLine("training samples", trained));
  if (tried->samples > 0) options.print(LossLine("test samples", *tried));
  options.print("dry run: one batch was tried, nothing was trained");
  return absl::OkStatus();
}

}  // namespace torchps
