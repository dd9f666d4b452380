#include "worker/learner.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "worker/fetch_batch.h"
#include "worker/torch_error.h"

namespace torchps {
namespace {

// Test samples go through the model without gradients, so more of them fit than in training.
constexpr int64_t kEvaluationBatch = 256;

// Runs code that is partly the user's, which may throw.
template <typename Result>
absl::StatusOr<Result> Guard(const char* what, const std::function<absl::StatusOr<Result>()>& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    return TorchError(what, error);
  }
}

// backward() wants a scalar, and torch's own message about it does not say whose it is.
absl::Status CheckLoss(const torch::Tensor& loss) {
  if (loss.defined() && loss.numel() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the objective's loss has ", loss.defined() ? loss.numel() : 0,
                   " elements; expected one: the mean over the batch"));
}

}  // namespace

Learner::Learner(Task task, FlatModel* model, Options options)
    : task_(std::move(task)), model_(model), options_(options) {
  // Clipping and checking need the whole gradient, and a GPU's reaches the host as a whole.
  if (NeedsWholeGradient(options_.training) || !model_->device().is_cpu()) return;
  watch_ =
      std::make_unique<GradientWatch>(model_->layout(), *options_.block_map, model_->parameters());
}

Batch Learner::ToDevice(Batch batch) const {
  if (model_->device().is_cpu()) return batch;
  const auto move = [this](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.to(model_->device()) : tensor;
  };
  batch.input = move(batch.input);
  batch.target = move(batch.target);
  for (torch::Tensor& tensor : batch.more_inputs) tensor = move(tensor);
  for (torch::Tensor& tensor : batch.more_targets) tensor = move(tensor);
  return batch;
}

absl::StatusOr<Learner::Gradient> Learner::Compute(const Step& step, Observer* observer) {
  return Guard<Gradient>("a training step", [&]() -> absl::StatusOr<Gradient> {
    const absl::Duration began = options_.clock->Now();
    const absl::Span<const int64_t> samples = step.samples;
    Gradient gradient;
    gradient.samples = static_cast<int64_t>(samples.size());
    absl::Duration observed;
    // Also when something throws.
    const auto disarm = absl::MakeCleanup([this] {
      if (watch_ != nullptr) watch_->Disarm().IgnoreError();
    });
    const size_t pass_samples = options_.training.batch_size();
    for (size_t begin = 0; begin < samples.size(); begin += pass_samples) {
      const absl::Duration asked = options_.clock->Now();
      const absl::Span<const int64_t> pass = samples.subspan(begin, pass_samples);
      absl::StatusOr<Batch> fetched = FetchBatch(*task_.data().train, pass);
      if (!fetched.ok()) return fetched.status();
      if (task_.callbacks().augment != nullptr) {
        const uint64_t seed = step.seed + begin;
        fetched = task_.callbacks().augment(*std::move(fetched),
                                            torch::make_generator<torch::CPUGeneratorImpl>(seed));
      }
      gradient.data_time += options_.clock->Now() - asked;

      const torch::Tensor loss =
          task_.objective().loss(task_.Forward(ToDevice(*std::move(fetched)), step.number));
      if (absl::Status status = CheckLoss(loss); !status.ok()) return status;
      if (begin == 0) {
        const absl::Duration told = options_.clock->Now();
        if (absl::Status status = observer->BeforeGradient(); !status.ok()) return status;
        observed = options_.clock->Now() - told;
        model_->ZeroGradients();
      }
      if (watch_ != nullptr && begin + pass.size() == samples.size()) {
        watch_->Arm([observer](BlockId block) { observer->OnBlock(block); });
      }
      const auto pass_size = static_cast<double>(pass.size());
      // The mean over all samples is the mean of the passes' means, weighed by their samples.
      if (pass.size() == samples.size()) {
        loss.backward();
      } else {
        (loss * (pass_size / static_cast<double>(samples.size()))).backward();
      }
      gradient.loss_sum += loss.item<double>() * pass_size;
    }
    if (watch_ != nullptr) {
      if (absl::Status status = watch_->Disarm(); !status.ok()) return status;
    }
    const absl::StatusOr<Finite> finite = FinishGradient(options_.training, model_);
    if (!finite.ok()) return finite.status();
    gradient.finite = *finite;
    gradient.compute_time = options_.clock->Now() - began - gradient.data_time - observed;
    return gradient;
  });
}

absl::StatusOr<Learner::Evaluation> Learner::Evaluate() {
  Evaluation evaluation;
  const Dataset* test = task_.data().test.get();
  if (test == nullptr || test->size() == 0) return evaluation;
  task_.module().eval();
  const absl::StatusOr<Evaluation> result =
      Guard<Evaluation>("the evaluation", [&]() -> absl::StatusOr<Evaluation> {
        const torch::NoGradGuard no_grad;
        std::vector<int64_t> all(test->size());
        std::iota(all.begin(), all.end(), int64_t{0});
        const absl::Span<const int64_t> samples(all);
        const Objective& objective = task_.objective();
        double loss_sum = 0;
        std::vector<Metric::Part> sums(objective.metrics.size());
        for (size_t begin = 0; begin < samples.size(); begin += kEvaluationBatch) {
          const absl::Span<const int64_t> pass = samples.subspan(begin, kEvaluationBatch);
          absl::StatusOr<Batch> fetched = FetchBatch(*test, pass);
          if (!fetched.ok()) return fetched.status();
          const Pass result = task_.Forward(ToDevice(*std::move(fetched)));
          const torch::Tensor loss = objective.loss(result);
          if (absl::Status status = CheckLoss(loss); !status.ok()) return status;
          loss_sum += loss.item<double>() * static_cast<double>(pass.size());
          for (size_t i = 0; i < sums.size(); ++i) {
            const Metric::Part part = objective.metrics[i].measure(result);
            sums[i].sum += part.sum;
            sums[i].weight += part.weight;
          }
        }
        evaluation.samples = test->size();
        evaluation.loss = loss_sum / static_cast<double>(evaluation.samples);
        for (size_t i = 0; i < sums.size(); ++i) {
          MetricValue& value = evaluation.metrics.emplace_back();
          value.set_name(objective.metrics[i].name);
          value.set_value(sums[i].sum / sums[i].weight);
          value.set_lower_is_better(objective.metrics[i].lower_is_better);
        }
        return evaluation;
      });
  task_.module().train();
  return result;
}

}  // namespace torchps
