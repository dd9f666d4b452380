#include "torchps/worker/learner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"
#include "torchps/worker/feed/batch_loader.h"
#include "torchps/worker/model_use.h"
#include "torchps/worker/precision/precision.h"
#include "torchps/worker/stages/stages.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

// Returns null if the module is on one device.
std::unique_ptr<Pipeline> MakePipeline(const torch::nn::Module& module, const FlatModel& model,
                                       TrainingSpec::Precision precision) {
  if (model.devices().size() == 1) return nullptr;
  const auto* const stages = dynamic_cast<const StagesImpl*>(&module);
  TPS_CHECK(stages != nullptr, "a model on several devices is in stages");
  return std::make_unique<Pipeline>(stages->stages(), model.devices(), precision);
}

// Returns micro-batch number `part` of `parts`, a nearly equal share of the batch's rows.
Batch MicroBatch(const Batch& batch, int64_t part, int64_t parts) {
  const int64_t rows = batch.input.size(0);
  const int64_t begin = rows * part / parts;
  return GetRows(batch, begin, rows * (part + 1) / parts - begin);
}

std::shared_ptr<LossScaler> GetScaler(const Learner::Options& options) {
  if (options.training.precision() != TrainingSpec::FLOAT16) return nullptr;
  return options.scaler != nullptr ? options.scaler : std::make_shared<LossScaler>();
}

// Sums the losses of a step's passes, weighted by samples. Device losses are read once at the end,
// because reading one waits for all enqueued work.
class LossSum {
 public:
  explicit LossSum(bool read_at_once) : read_at_once_(read_at_once) {}

  void Add(const torch::Tensor& loss, double samples) {
    if (read_at_once_) {
      sum_ += loss.item<double>() * samples;
    } else {
      losses_.emplace_back(loss.detach(), samples);
    }
  }
  double Read() {
    for (const auto& [loss, samples] : losses_) sum_ += loss.item<double>() * samples;
    losses_.clear();
    return sum_;
  }

 private:
  const bool read_at_once_;
  double sum_ = 0;
  std::vector<std::pair<torch::Tensor, double>> losses_;
};

// Returns null if batches need no upload, or if the uploader cannot be made. The second case is
// logged; each pass then copies the batch itself.
std::unique_ptr<BatchUploader> MakeLift(const FlatModel& model, const Learner::Options& options) {
  // An uploader has one device, but the micro-batches of stages go to several.
  if (model.devices().size() > 1) return nullptr;
  absl::StatusOr<std::unique_ptr<BatchUploader>> lift =
      options.device_factory->MakeUploader(model.device());
  if (lift.ok()) return *std::move(lift);
  options.observer->Log(absl::StrCat("batches are copied while ", model.device().str(),
                                     " waits, not while it computes: ", lift.status().message()));
  return nullptr;
}

// Like FinishGradient(), for a gradient that is not checked as a whole and that an outbox copies.
absl::StatusOr<Finite> FinishCopies(const FlatModel& model, GradientOutbox* outbox) {
  if (absl::Status status = outbox->Finish(); !status.ok()) return status;
  if (absl::Status status = model.CheckViews(); !status.ok()) return status;
  return Finite::kUnknown;
}

}  // namespace

Learner::Learner(Task task, FlatModel* model, Options options)
    : task_(std::move(task)),
      model_(model),
      options_(std::move(options)),
      route_(ChooseRoute(options_, model_)),
      lift_(MakeLift(*model_, options_)),
      loader_(task_.data().train, task_.callbacks().augment, options_.loader_threads, lift_.get()),
      watch_(model_->layout(), *options_.block_map, model_->parameters()),
      scaler_(GetScaler(options_)),
      pipeline_(MakePipeline(task_.module(), *model_, options_.training.precision())) {
  BeginTraining(task_.module());
}

Learner::Route Learner::ChooseRoute(const Options& options, FlatModel* model) {
  using Kind = Route::Kind;
  if (options.local_steps) return {Kind::kKept, /*reports_early=*/false, nullptr, nullptr};
  // Clipping and checking need the whole gradient. With several replicas, the gradient is complete
  // only when those of the replicas are summed.
  const bool by_block = !NeedsWholeGradient(options.training) && options.replicas == 1;
  if (model->on_host()) return {Kind::kInPlace, by_block, nullptr, nullptr};
  EncodedOutbox* const encoded = options.replicas == 1 ? model->encoded_outbox() : nullptr;
  if (encoded != nullptr) return {Kind::kEncoded, by_block, nullptr, encoded};
  GradientOutbox* const copied = by_block ? model->MakeOutbox() : nullptr;
  if (copied != nullptr) return {Kind::kCopiedByBlock, /*reports_early=*/true, copied, nullptr};
  return {Kind::kCopied, /*reports_early=*/false, nullptr, nullptr};
}

BatchLoader::Pass Learner::PassAt(const StepWork& step, size_t begin) const {
  const auto most = static_cast<size_t>(step.batch_size);
  const absl::Span<const int64_t> whole =
      begin < step.samples.size() ? step.samples.subspan(begin, most)
                                  : step.upcoming.subspan(begin - step.samples.size(), most);
  const PartOfPass part = GetPart(whole.size(), options_.replica, options_.replicas);
  const absl::Span<const int64_t> samples = whole.subspan(part.begin, part.size);
  return {{samples.begin(), samples.end()},
          AugmentSeed(options_.seed, step.epoch,
                      step.position + static_cast<int64_t>(begin + part.begin))};
}

absl::StatusOr<Batch> Learner::TakeBatch(const StepWork& step, size_t begin) {
  const BatchLoader::Pass pass = PassAt(step, begin);
  if (loader_.ahead() > 0) {
    std::vector<BatchLoader::Pass> expected = {pass};
    const size_t known = step.samples.size() + step.upcoming.size();
    const auto most = static_cast<size_t>(step.batch_size);
    // The last pass of a step may be shorter than the others.
    const auto end_of = [&](size_t from) {
      return from < step.samples.size() ? std::min(from + most, step.samples.size()) : from + most;
    };
    for (size_t next = end_of(begin); next < known && expected.size() <= loader_.ahead();
         next = end_of(next)) {
      BatchLoader::Pass coming = PassAt(step, next);
      if (!coming.samples.empty()) expected.push_back(std::move(coming));
    }
    loader_.Expect(std::move(expected));
  }
  return loader_.Take(pass);
}

int Learner::MicroBatches(int64_t samples) const {
  if (pipeline_ == nullptr) return 1;
  const auto stages = static_cast<int64_t>(model_->devices().size());
  const int64_t wanted = options_.micro_batches > 0 ? options_.micro_batches : 2 * stages;
  return static_cast<int>(std::clamp<int64_t>(samples, 1, wanted));
}

torch::Tensor Learner::Scaled(const torch::Tensor& loss) const {
  if (scaler_ == nullptr || scaler_->scale() == 1) return loss;
  // Casts first, because the scaled loss may overflow float16.
  return loss.to(torch::kFloat32) * scaler_->scale();
}

absl::StatusOr<Loss> Learner::ForwardToLoss(Batch batch, int64_t step) const {
  const torch::Device device = model_->device();
  const Autocast autocast(options_.training.precision(), device.type());
  const Pass pass = task_.Forward(ToDevice(std::move(batch), device), step);
  if (absl::Status status = model_->CheckUnchanged(); !status.ok()) return status;
  return GetLoss(task_.objective(), pass);
}

absl::StatusOr<torch::Tensor> Learner::RunPass(PassWork work) {
  if (pipeline_ != nullptr) return RunPassInStages(std::move(work));
  const absl::StatusOr<Loss> loss = ForwardToLoss(std::move(work.batch), work.step);
  if (!loss.ok()) return loss.status();
  if (absl::Status status = work.before_backward(loss->weight); !status.ok()) return status;
  Scaled(loss->GetPart(work.samples, work.step_samples)).backward();
  return loss->mean;
}

absl::StatusOr<torch::Tensor> Learner::RunPassInStages(PassWork work) {
  TORCH_CHECK(work.batch.more_inputs.empty(), "the dataset returns ",
              1 + work.batch.more_inputs.size(), " inputs, but a module in stages takes one");
  TORCH_CHECK(task_.objective().weighted_loss == nullptr,
              "a module in stages does not support a WeightedLoss; expected the mean over samples");
  const int64_t rows = work.batch.input.size(0);
  const int parts = work.micro_batches;
  const auto rows_of = [&](int part) {
    return static_cast<double>(rows * (part + 1) / parts - rows * part / parts);
  };
  std::vector<torch::Tensor> losses;
  Pipeline::Work pipeline;
  for (int part = 0; part < parts; ++part) {
    pipeline.inputs.push_back(MicroBatch(work.batch, part, parts).input);
  }
  pipeline.loss = [&](int part, const torch::Tensor& output) -> absl::StatusOr<torch::Tensor> {
    options_.observer->OnProgress();
    Batch batch = ToDevice(MicroBatch(work.batch, part, parts), model_->devices().back());
    const absl::StatusOr<Loss> loss =
        GetLoss(task_.objective(), {&task_.module(), {output}, std::move(batch), work.step});
    if (!loss.ok()) return loss.status();
    losses.push_back(loss->mean.detach());
    return Scaled(loss->GetPart(rows_of(part), work.step_samples));
  };
  pipeline.before_backward = [&work] { return work.before_backward(work.samples); };
  try {
    if (absl::Status status = pipeline_->Run(pipeline); !status.ok()) return status;
  } catch (...) {
    return ThrownError(absl::StrCat("stage ", pipeline_->failed_stage(), " of a training step"));
  }
  double mean = 0;
  // Read at the end: on a GPU, reading a loss waits for all earlier work.
  for (int part = 0; part < parts; ++part) {
    mean += losses[part].item<double>() * rows_of(part) / static_cast<double>(rows);
  }
  return torch::tensor(mean, torch::kFloat64);
}

absl::StatusOr<Learner::Gradient> Learner::Compute(const StepWork& step, Observer* observer) {
  absl::StatusOr<Gradient> gradient = ComputePart(step, observer);
  if (!gradient.ok()) return gradient;
  if (absl::Status finished = Finish(&*gradient); !finished.ok()) return finished;
  return gradient;
}

absl::StatusOr<Learner::Gradient> Learner::ComputePart(const StepWork& step, Observer* observer) {
  try {
    return ComputePasses(step, observer);
  } catch (...) {
    // The user's code may throw.
    return ThrownError("a training step");
  }
}

absl::StatusOr<Learner::Gradient> Learner::ComputePasses(const StepWork& step, Observer* observer) {
  const absl::Duration began = options_.clock->Now();
  const absl::Span<const int64_t> samples = step.samples;
  Gradient gradient;
  absl::Duration observed;
  if (absl::Status status = model_->CheckModule(task_.module()); !status.ok()) return status;
  Outbox* const outbox = route_.outbox();
  // Also runs if something throws.
  auto drop = absl::MakeCleanup([this, outbox] {
    watch_.Disarm().IgnoreError();
    if (outbox != nullptr) outbox->Drop();
  });
  const bool is_weighted = task_.objective().weighted_loss != nullptr;
  LossSum loss_sum(/*read_at_once=*/model_->on_host());
  const auto most = static_cast<size_t>(step.batch_size);
  for (size_t begin = 0; begin < samples.size(); begin += most) {
    const size_t whole = std::min(most, samples.size() - begin);
    const size_t size = GetPart(whole, options_.replica, options_.replicas).size;
    if (size == 0) continue;
    const absl::Duration asked = options_.clock->Now();
    absl::StatusOr<Batch> fetched = TakeBatch(step, begin);
    if (!fetched.ok()) return fetched.status();
    gradient.data_time += options_.clock->Now() - asked;
    options_.observer->OnProgress();
    options_.observer->OnPass(whole);

    PassWork work;
    work.batch = *std::move(fetched);
    const int micro_batches = MicroBatches(work.batch.input.size(0));
    work.micro_batches = micro_batches;
    work.step = step.number;
    work.samples = static_cast<double>(size);
    work.step_samples = static_cast<double>(samples.size());
    const bool is_first = gradient.samples == 0;
    const bool is_last = begin + whole == samples.size();
    work.before_backward = [&, is_first, is_last, micro_batches](double weight) -> absl::Status {
      if (is_weighted) gradient.weight = gradient.weight.value_or(0) + weight;
      if (is_first) {
        const absl::Duration told = options_.clock->Now();
        if (absl::Status status = observer->BeforeGradient(told - began - gradient.data_time);
            !status.ok())
          return status;
        if (!route_.leaves_device()) {
          if (absl::Status status = observer->BeforeBlocks(); !status.ok()) return status;
        }
        observed = options_.clock->Now() - told;
        model_->ZeroGradients();
        watch_.BeginStep();
        if (outbox != nullptr) outbox->BeginStep();
      }
      if (route_.reports_early && is_last) {
        if (is_weighted && !route_.leaves_device()) observer->OnWeight(*gradient.weight);
        watch_.Arm(
            [outbox, observer](BlockId block) {
              outbox != nullptr ? outbox->BlockFinal(block) : observer->OnBlock(block);
            },
            micro_batches);
      }
      return absl::OkStatus();
    };
    const absl::StatusOr<torch::Tensor> loss = RunPass(std::move(work));
    if (!loss.ok()) return loss.status();
    if (lift_ != nullptr) lift_->EndPass();
    loss_sum.Add(*loss, static_cast<double>(size));
    gradient.samples += static_cast<int64_t>(size);
    options_.observer->OnProgress();
  }
  if (absl::Status status = watch_.Disarm(); !status.ok()) return status;
  if (route_.leaves_device()) {
    // The device may still compute while BeforeBlocks() runs. A link reports when the device is
    // done. Without a link, loss_sum.Read() waits for the device first, so that the times are
    // correct.
    std::optional<WorkEnd> computed;
    if (DeviceLink* const link = model_->link(); link != nullptr) {
      computed.emplace(link, options_.clock);
    } else {
      loss_sum.Read();
    }
    const absl::Duration told = options_.clock->Now();
    if (absl::Status status = observer->BeforeBlocks(); !status.ok()) return status;
    observed += IdleSince(told, computed);
    if (outbox != nullptr) {
      if (is_weighted) observer->OnWeight(*gradient.weight);
      outbox->Open([observer](BlockId block) { observer->OnBlock(block); });
    }
  }
  gradient.loss_sum = loss_sum.Read();
  if (options_.replicas > 1) {
    // Finish() runs only on the first replica, so each replica checks its own views here.
    if (absl::Status status = model_->CheckViews(); !status.ok()) return status;
  }
  if (!watch_.ReachedAll()) gradient.absent = watch_.Unreached();
  gradient.compute_time = options_.clock->Now() - began - gradient.data_time - observed;
  // Finish() waits for the outbox's copies, so they must not be dropped here.
  std::move(drop).Cancel();
  return gradient;
}

absl::Duration Learner::IdleSince(absl::Duration told,
                                  const std::optional<WorkEnd>& computed) const {
  const std::optional<absl::Duration> end = computed.has_value() ? computed->at() : told;
  if (!end.has_value()) return absl::ZeroDuration();
  return options_.clock->Now() - std::max(told, *end);
}

absl::StatusOr<Finite> Learner::FinishEncoded(ElementRuns* absent) {
  auto drop = absl::MakeCleanup([this] { route_.encoded->Drop(); });
  absl::StatusOr<Finite> finite = FinishGradientOnDevice(options_.training, model_, scaler_.get());
  if (!finite.ok()) return finite;
  absent->clear();
  if (*finite == Finite::kNo || *finite == Finite::kOverflow) return finite;
  if (!watch_.ReachedAll()) {
    try {
      *absent = watch_.Absent(model_->device_gradients());
    } catch (...) {
      return ThrownError("looking for absent gradients");
    }
  }
  if (absl::Status status = route_.encoded->Finish(*absent); !status.ok()) return status;
  return finite;
}

absl::StatusOr<Finite> Learner::FinishRoute(ElementRuns* absent) {
  switch (route_.kind) {
    case Route::Kind::kKept:
      return FinishLocalGradient(options_.training, model_, scaler_.get());
    case Route::Kind::kEncoded:
      return FinishEncoded(absent);
    case Route::Kind::kCopiedByBlock:
      return FinishCopies(*model_, route_.copied);
    case Route::Kind::kInPlace:
    case Route::Kind::kCopied:
      break;
  }
  return FinishGradient(options_.training, model_, scaler_.get());
}

absl::Status Learner::Finish(Gradient* gradient) {
  const absl::Duration began = options_.clock->Now();
  const double scale = scaler_ == nullptr ? 1 : scaler_->scale();
  const absl::StatusOr<Finite> finite = FinishRoute(&gradient->absent);
  if (!finite.ok()) return finite.status();
  gradient->finite = *finite;
  gradient->overflows = *finite == Finite::kOverflow ? 1 : 0;
  if (scaler_ != nullptr && scaler_->scale() != scale) options_.observer->OnScale(*scaler_);
  if (route_.kind != Route::Kind::kEncoded) {
    gradient->absent.clear();
    if (!watch_.ReachedAll()) {
      if (route_.kind == Route::Kind::kKept) {
        if (absl::Status status = model_->ToHost(); !status.ok()) return status;
      }
      gradient->absent = watch_.Absent(model_->gradients());
    }
  }
  gradient->compute_time += options_.clock->Now() - began;
  return absl::OkStatus();
}

}  // namespace torchps
