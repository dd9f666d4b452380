#include "torchps/worker/pipeline/stage_work.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torch/utils.h"
#include "torchps/common/cpu/finite_check.h"
#include "torchps/worker/feed/batch_loader.h"
#include "torchps/worker/gradient/gradient_scan.h"
#include "torchps/worker/model_use.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

// Samples per batch of an evaluation, as in an evaluation by a single process
// (torchps/worker/model_use.cc).
constexpr int64_t kTestBatch = 256;

// Default number of micro-batches per stage. Filling and draining the pipeline then takes less than
// a third of the time (torchps/worker/stages/pipeline.h).
constexpr int kMicroBatchesPerStage = 2;

// Batches per stage in one round of an evaluation. The first stage waits for the last stage after
// each round, because with forward passes only, the first stage could run far ahead of the last.
constexpr int kTestBatchesPerStage = 4;

absl::Status CheckInputs(const Batch& batch) {
  if (batch.more_inputs.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the dataset returns ",
                                                 1 + batch.more_inputs.size(),
                                                 " inputs, but a module in stages accepts one"));
}

ReplicaReport GetReport(const Evaluation& evaluation) {
  ReplicaReport report;
  report.set_samples(evaluation.samples);
  report.set_loss_sum(evaluation.loss * static_cast<double>(evaluation.samples));
  for (const Evaluation::Value& metric : evaluation.metrics) {
    report.add_metric_value(metric.value);
  }
  return report;
}

}  // namespace

StageWork::StageWork(const MemberTask& task, Options options)
    : task_(task),
      options_(std::move(options)),
      passes_(task_.stage, options_.model->device(), options_.job.training().precision(),
              options_.exchange),
      loader_(task_.data.train, task_.augment, options_.loader_threads),
      watch_(options_.model->layout(), *options_.block_map, options_.model->parameters()) {
  BeginTraining(*task_.stage.module());
  if (options_.job.training().precision() == TrainingSpec::FLOAT16) scaler_.emplace();
}

void StageWork::Tell(MemberPhase phase, int64_t number) const {
  if (options_.on_phase != nullptr) options_.on_phase(phase, number);
}

std::vector<StageWork::MicroBatch> StageWork::Cut(const ReplicaOrder& order) const {
  const int64_t wanted = order.micro_batches() > 0
                             ? order.micro_batches()
                             : int64_t{kMicroBatchesPerStage} * options_.exchange->stages();
  std::vector<MicroBatch> parts;
  const int64_t batch_size = std::max<int64_t>(order.batch_size(), 1);
  for (int64_t begin = 0; begin < order.sample_size(); begin += batch_size) {
    const int64_t size = std::min(batch_size, order.sample_size() - begin);
    const int64_t count = std::clamp<int64_t>(wanted, 1, size);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = size * i / count;
      parts.push_back({begin, size, first, size * (i + 1) / count - first});
    }
  }
  return parts;
}

BatchLoader::Pass StageWork::PassAt(const ReplicaOrder& order, int64_t begin, int64_t size) const {
  const int64_t own = order.sample_size();
  const int64_t* const samples =
      begin < own ? order.sample().data() + begin : order.upcoming().data() + (begin - own);
  return {{samples, samples + size},
          AugmentSeed(options_.job.seed(), order.epoch(), order.position() + begin)};
}

std::vector<BatchLoader::Pass> StageWork::PassesFrom(const ReplicaOrder& order,
                                                     int64_t begin) const {
  const int64_t batch_size = std::max<int64_t>(order.batch_size(), 1);
  const int64_t own = order.sample_size();
  const int64_t known = own + order.upcoming_size();
  std::vector<BatchLoader::Pass> passes;
  while (begin < known && passes.size() <= loader_.ahead()) {
    // The order's last pass may be shorter than the other passes.
    const int64_t size = std::min(batch_size, (begin < own ? own : known) - begin);
    passes.push_back(PassAt(order, begin, size));
    begin += size;
  }
  return passes;
}

absl::StatusOr<Batch> StageWork::Fetch(const ReplicaOrder& order, const MicroBatch& part) {
  if (part.pass_begin != fetched_) {
    const absl::Duration began = options_.clock->Now();
    const BatchLoader::Pass pass = PassAt(order, part.pass_begin, part.pass_size);
    if (loader_.ahead() > 0) loader_.Expect(PassesFrom(order, part.pass_begin));
    absl::StatusOr<Batch> batch = loader_.Take(pass);
    if (!batch.ok()) return batch.status();
    if (absl::Status status = CheckInputs(*batch); !status.ok()) return status;
    batch_ = *std::move(batch);
    fetched_ = part.pass_begin;
    data_time_ += options_.clock->Now() - began;
    options_.observer->OnProgress();
  }
  return GetRows(batch_, part.begin, part.size);
}

absl::StatusOr<StageWork::Gradient> StageWork::Train(
    int64_t number, const ReplicaOrder& order,
    const std::function<absl::Status(absl::Duration compute_time)>& before_gradient) {
  try {
    return Compute(number, order, before_gradient);
  } catch (const MemberKilled&) {
    throw;
  } catch (...) {
    return ThrownError(absl::StrCat("stage ", options_.exchange->stage(), " of a training step"));
  }
}

absl::StatusOr<StageWork::Gradient> StageWork::Compute(
    int64_t number, const ReplicaOrder& order,
    const std::function<absl::Status(absl::Duration compute_time)>& before_gradient) {
  const absl::Duration began = options_.clock->Now();
  const torch::nn::Module& module = *task_.stage.module();
  if (absl::Status status = options_.model->CheckModule(module); !status.ok()) return status;
  const std::vector<MicroBatch> parts = Cut(order);
  if (parts.empty()) return absl::InvalidArgumentError("the training order contains no samples");
  const int64_t train_samples = task_.data.train->size();
  for (const auto* const samples : {&order.sample(), &order.upcoming()}) {
    for (const int64_t sample : *samples) {
      if (sample < 0 || sample >= train_samples) {
        return absl::InvalidArgumentError(
            absl::StrCat("the training order names sample ", sample, " of ", train_samples));
      }
    }
  }
  fetched_ = -1;
  data_time_ = absl::ZeroDuration();
  absl::Duration observed;
  std::vector<torch::Tensor> losses;
  const auto samples = static_cast<double>(order.sample_size());

  StagePasses::Work work;
  work.order = number;
  work.micro_batches = static_cast<int>(parts.size());
  work.input = [&](int part) -> absl::StatusOr<torch::Tensor> {
    absl::StatusOr<Batch> batch = Fetch(order, parts[part]);
    if (!batch.ok()) return batch.status();
    return std::move(batch->input);
  };
  work.loss = [&](int part, const torch::Tensor& output) -> absl::StatusOr<torch::Tensor> {
    absl::StatusOr<Batch> batch = Fetch(order, parts[part]);
    if (!batch.ok()) return batch.status();
    const absl::StatusOr<Loss> computed =
        GetLoss(task_.objective, {task_.stage.module().get(),
                                  {output},
                                  ToDevice(*std::move(batch), output.device()),
                                  order.number()});
    if (!computed.ok()) return computed.status();
    const torch::Tensor& loss = computed->mean;
    losses.push_back(loss.detach());
    // The mean over all samples is the mean of the micro-batch means, weighted by sample counts.
    const double weight = static_cast<double>(parts[part].size) / samples;
    // Casts first, because float16 cannot represent the scale.
    return scaler_.has_value() ? loss.to(torch::kFloat32) * (weight * scaler_->scale())
                               : loss * weight;
  };
  work.before_backward = [&]() -> absl::Status {
    const absl::Duration told = options_.clock->Now();
    if (absl::Status status = before_gradient(told - began - data_time_); !status.ok())
      return status;
    observed = options_.clock->Now() - told;
    options_.model->ZeroGradients();
    watch_.BeginStep();
    Tell(MemberPhase::kBackward, number);
    return absl::OkStatus();
  };
  work.observer = options_.observer;
  Tell(MemberPhase::kForward, number);
  if (absl::Status status = passes_.Train(work); !status.ok()) return status;

  Gradient gradient;
  double loss_sum = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    loss_sum += losses[i].item<double>() * static_cast<double>(parts[i].size);
  }
  if (absl::Status status = Conclude(number, loss_sum, &gradient); !status.ok()) return status;
  if (!watch_.ReachedAll()) gradient.absent = watch_.Absent(options_.model->gradients());
  gradient.data_time = data_time_;
  gradient.compute_time = options_.clock->Now() - began - data_time_ - observed;
  return gradient;
}

absl::Status StageWork::Conclude(int64_t number, double loss_sum, Gradient* gradient) {
  Exchange* const exchange = options_.exchange;
  FlatModel* const model = options_.model;
  LossScaler* const scaler = scaler_.has_value() ? &*scaler_ : nullptr;
  if (absl::Status status = FetchGradient(model, scaler); !status.ok()) return status;
  const bool rules = NeedsWholeGradient(options_.job.training());
  const Exchange::Name computed = {TensorMessage::COMPUTED, number, 0};
  const Exchange::Name ruled = {TensorMessage::RULING, number, 0};
  ReplicaReport own;
  own.set_finite(true);
  own.set_loss_sum(loss_sum);
  if (rules) {
    const GradientScan scan = ScanGradient(model->gradients());
    own.set_finite(scan.finite && FirstNonFinite(model->averaged()) < 0);
    own.set_squares(scan.finite ? scan.norm * scan.norm : 0);
  }
  GradientRuling ruling;
  if (exchange->leads()) {
    double squares = own.squares();
    ruling.set_drop(!own.finite());
    gradient->loss_sum = own.loss_sum();
    for (int stage = 1; stage < exchange->stages(); ++stage) {
      const absl::StatusOr<Exchange::Delivery> delivery = exchange->Take(stage, computed);
      if (!delivery.ok()) return delivery.status();
      const ReplicaReport& report = delivery->parcel.report();
      squares += report.squares();
      gradient->loss_sum += report.loss_sum();
      if (!report.finite()) ruling.set_drop(true);
    }
    ruling.set_norm(std::sqrt(squares));
    for (int stage = 1; rules && stage < exchange->stages(); ++stage) {
      TensorMessage parcel = Exchange::Of(ruled);
      *parcel.mutable_ruling() = ruling;
      exchange->Send(stage, std::move(parcel));
    }
  } else {
    TensorMessage parcel = Exchange::Of(computed);
    *parcel.mutable_report() = own;
    exchange->Send(0, std::move(parcel));
    if (rules) {
      const absl::StatusOr<Exchange::Delivery> delivery = exchange->Take(0, ruled);
      if (!delivery.ok()) return delivery.status();
      ruling = delivery->parcel.ruling();
    }
  }
  if (!rules) return absl::OkStatus();
  const double scale = scaler == nullptr ? 1 : scaler->scale();
  gradient->finite = Judge(!ruling.drop(), scaler);
  if (scaler != nullptr && scaler->scale() != scale) options_.observer->OnScale(*scaler);
  if (!ruling.drop()) {
    ClipGradient(model->gradients(), ruling.norm(), options_.job.training().clip_norm());
  }
  return absl::OkStatus();
}

absl::StatusOr<ReplicaReport> StageWork::Evaluate(int64_t number) {
  try {
    const EvaluationMode evaluation(*task_.stage.module());
    const torch::NoGradGuard no_grad;
    return Measure(number);
  } catch (...) {
    return ThrownError(absl::StrCat("stage ", options_.exchange->stage(), " of the evaluation"));
  }
}

absl::StatusOr<ReplicaReport> StageWork::Measure(int64_t number) {
  ReplicaReport report;
  const Dataset* const test = task_.data.test.get();
  if (test == nullptr || test->size() == 0) return report;
  MetricSums sums(&task_.objective);
  Exchange* const exchange = options_.exchange;
  const auto batches = static_cast<int>((test->size() + kTestBatch - 1) / kTestBatch);
  const int round = kTestBatchesPerStage * exchange->stages();
  for (int first = 0; first < batches; first += round) {
    absl::Status status = MeasureRound(number, first, std::min(round, batches - first), &sums);
    if (!status.ok()) return status;
    report = GetReport(sums.Result());
    const Exchange::Name computed = {TensorMessage::COMPUTED, number, first};
    if (exchange->is_last() && !exchange->leads()) {
      TensorMessage parcel = Exchange::Of(computed);
      *parcel.mutable_report() = report;
      exchange->Send(0, std::move(parcel));
    } else if (exchange->leads() && !exchange->is_last()) {
      const absl::StatusOr<Exchange::Delivery> delivery =
          exchange->Take(exchange->stages() - 1, computed);
      if (!delivery.ok()) return delivery.status();
      report = delivery->parcel.report();
    }
  }
  return report;
}

absl::Status StageWork::MeasureRound(int64_t number, int first, int batches, MetricSums* sums) {
  const Dataset& test = *task_.data.test;
  const auto fetch = [&](int index) -> absl::StatusOr<Batch> {
    std::vector<int64_t> samples(std::min(kTestBatch, test.size() - index * kTestBatch));
    std::iota(samples.begin(), samples.end(), index * kTestBatch);
    absl::StatusOr<Batch> batch = FetchBatch(test, samples);
    if (!batch.ok()) return batch;
    if (absl::Status status = CheckInputs(*batch); !status.ok()) return status;
    return batch;
  };
  StagePasses::Work work;
  work.order = number;
  work.first = first;
  work.micro_batches = batches;
  work.input = [&](int index) -> absl::StatusOr<torch::Tensor> {
    absl::StatusOr<Batch> batch = fetch(index);
    if (!batch.ok()) return batch.status();
    return std::move(batch->input);
  };
  work.loss = [&](int index, const torch::Tensor& output) -> absl::StatusOr<torch::Tensor> {
    absl::StatusOr<Batch> batch = fetch(index);
    if (!batch.ok()) return batch.status();
    const absl::Status added = sums->Add({task_.stage.module().get(),
                                          {output},
                                          ToDevice(*std::move(batch), output.device()),
                                          /*step=*/0,
                                          &task_.data.preprocessing});
    if (!added.ok()) return added;
    return output;
  };
  work.observer = options_.observer;
  return passes_.Evaluate(work);
}

}  // namespace torchps
