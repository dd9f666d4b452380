#include "torchps/worker/slot/dry_run.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torch/utils.h"
#include "torchps/common/block_map.h"
#include "torchps/job/local_steps.h"
#include "torchps/job/optimizer_fields.h"
#include "torchps/worker/device.h"
#include "torchps/worker/feed/batch_loader.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/learner.h"
#include "torchps/worker/loop/lease_cursor.h"
#include "torchps/worker/model_use.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/slot/worker_slot.h"
#include "torchps/worker/torch_error.h"
#include "torchps/worker/training_observer.h"

namespace torchps {

namespace {

constexpr int64_t kSamples = 16;
constexpr int64_t kSamplesOfPart = 4;

// The first samples of a dataset. Borrows the dataset.
class FirstSamples final : public Dataset {
 public:
  FirstSamples(const Dataset* data, int64_t most)
      : data_(*data), size_(std::min(data->size(), most)) {}

  int64_t size() const override { return size_; }
  DataShape shape() const override { return data_.shape(); }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    return data_.Get(indices);
  }

 private:
  const Dataset& data_;
  const int64_t size_;
};

torch::Device GetDevice(const torch::nn::Module& module) {
  const std::vector<torch::Tensor> parameters = module.parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters.front().device();
}

absl::StatusOr<double> MeanLoss(const Task& task, Batch batch) {
  const Pass pass = task.Forward(ToDevice(std::move(batch), GetDevice(task.module())));
  const absl::StatusOr<Loss> loss = GetLoss(task.objective(), pass);
  if (!loss.ok()) return loss.status();
  return loss->mean.item<double>();
}

// Returns true if the values differ by more than rounding, or if one is not finite.
bool Differs(double a, double b) { return !(std::abs(a - b) <= 1e-4 * std::max(1.0, std::abs(a))); }

absl::Status TryLoss(const Task& task, const JobSpec& job,
                     const std::function<void(const std::string& line)>& print) {
  const EvaluationMode evaluation(task.module());
  const torch::NoGradGuard no_grad;
  // Spreads the samples evenly, because the first samples may all belong to one class.
  const int64_t all = task.data().train->size();
  const int64_t samples = std::min(all, kSamples);
  std::vector<int64_t> some(samples);
  for (int64_t i = 0; i < samples; ++i) some[i] = i * (all / samples);
  const absl::StatusOr<Batch> batch = FetchBatch(*task.data().train, some);
  if (!batch.ok()) return batch.status();
  const absl::StatusOr<double> whole = MeanLoss(task, *batch);
  if (!whole.ok()) return whole.status();
  const bool is_divided = job.workers() > 1 || job.training().accumulate() > 1;
  if (task.objective().weighted_loss != nullptr || !is_divided || samples < 2) {
    return absl::OkStatus();
  }
  // Detects a module with random layers: its loss differs at each call, so a comparison with the
  // parts shows nothing.
  const absl::StatusOr<double> again = MeanLoss(task, *batch);
  if (!again.ok()) return again.status();
  double of_parts = 0;
  for (int64_t begin = 0; begin < samples; begin += kSamplesOfPart) {
    const int64_t size = std::min(kSamplesOfPart, samples - begin);
    const absl::StatusOr<double> part = MeanLoss(task, GetRows(*batch, begin, size));
    if (!part.ok()) return part.status();
    of_parts += *part * static_cast<double>(size) / static_cast<double>(samples);
  }
  if (!std::isfinite(*whole) || Differs(*whole, *again) || !Differs(*whole, of_parts)) {
    return absl::OkStatus();
  }
  print(absl::StrFormat(
      "the loss is not a mean over samples: %.4g on %d samples, but %.4g averaged over their "
      "parts; "
      "several workers would train differently from one process (return a WeightedLoss: "
      "docs/guide.md)",
      *whole, samples, of_parts));
  return absl::OkStatus();
}

// Batch norm cannot train on a single sample, and torch's message for that is hard to interpret.
absl::Status CheckBatchNorm(const torch::nn::Module& module, const JobSpec& job) {
  const int64_t batch = job.training().batch_size();
  if (!job.training().global_batch() || batch >= 2 * job.workers()) return absl::OkStatus();
  for (const auto& layer : module.named_modules()) {
    if (!absl::StrContains(layer.value()->name(), "BatchNorm")) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "job field training.batch_size is %d; expected at least 2 samples for each of %d workers, "
        "since '%s' is a batch norm",
        batch, job.workers(), layer.key()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Evaluation> TryOut(const Task& task, const JobSpec& job,
                                  const std::function<void(const std::string& line)>& print) {
  if (absl::Status status = CheckBatchNorm(task.module(), job); !status.ok()) return status;
  try {
    TryLoss(task, job, print).IgnoreError();
  } catch (...) {
    // The module may still train even if it fails without gradients. If training fails too, the
    // first step reports the error.
  }
  const Dataset* const test = task.data().test.get();
  if (!job.training().evaluate() || test == nullptr || test->size() == 0) return Evaluation();
  const FirstSamples some(test, kSamples);
  return Evaluate(task, &some, GetDevice(task.module()));
}

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
  EpochPositions positions(job.seed(), all, job.training().shuffle());
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
