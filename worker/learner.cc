#include "worker/learner.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "common/cpu/finite_check.h"
#include "worker/gradient_scan.h"
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

}  // namespace

Learner::Learner(Task task, FlatModel* model, Options options)
    : task_(std::move(task)), model_(model), options_(options) {
  // Clipping and checking need the whole gradient, and a GPU's reaches the host as a whole.
  if (options_.clip_norm > 0 || options_.check_finite || !model_->device().is_cpu()) return;
  watch_ =
      std::make_unique<GradientWatch>(model_->layout(), *options_.block_map, model_->parameters());
}

Batch Learner::ToDevice(Batch batch) const {
  if (model_->device().is_cpu()) return batch;
  const auto move = [this](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.to(model_->device()) : tensor;
  };
  return {move(batch.input), move(batch.target)};
}

absl::StatusOr<Learner::Gradient> Learner::Compute(absl::Span<const int64_t> samples,
                                                   Observer* observer) {
  return Guard<Gradient>("a training step", [&]() -> absl::StatusOr<Gradient> {
    const absl::Duration began = options_.clock->Now();
    Gradient gradient;
    gradient.samples = static_cast<int64_t>(samples.size());
    absl::Duration observed;
    // Also when something throws.
    const auto disarm = absl::MakeCleanup([this] {
      if (watch_ != nullptr) watch_->Disarm().IgnoreError();
    });
    for (size_t begin = 0; begin < samples.size(); begin += options_.batch_size) {
      const absl::Duration asked = options_.clock->Now();
      const absl::Span<const int64_t> pass = samples.subspan(begin, options_.batch_size);
      absl::StatusOr<Batch> fetched = task_.data().train->Get(pass);
      if (!fetched.ok()) return fetched.status();
      gradient.data_time += options_.clock->Now() - asked;

      const Batch batch = ToDevice(*std::move(fetched));
      const torch::Tensor loss = task_.objective().loss(task_.Forward(batch.input), batch.target);
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
    if (absl::Status status = model_->CheckViews(); !status.ok()) return status;
    if (absl::Status status = model_->ToHost(); !status.ok()) return status;
    if (options_.clip_norm > 0 || options_.check_finite) {
      const GradientScan scan = ScanGradient(model_->gradients());
      const bool finite = scan.finite && FirstNonFinite(model_->averaged()) < 0;
      gradient.finite = finite ? Gradient::kFinite : Gradient::kNotFinite;
      if (finite && options_.clip_norm > 0)
        ClipGradient(model_->gradients(), scan.norm, options_.clip_norm);
    }
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
        evaluation.has_accuracy = objective.correct != nullptr;
        double loss_sum = 0;
        int64_t correct = 0;
        int64_t predictions = 0;
        for (size_t begin = 0; begin < samples.size(); begin += kEvaluationBatch) {
          const absl::Span<const int64_t> pass = samples.subspan(begin, kEvaluationBatch);
          absl::StatusOr<Batch> fetched = test->Get(pass);
          if (!fetched.ok()) return fetched.status();
          const Batch batch = ToDevice(*std::move(fetched));
          const torch::Tensor output = task_.Forward(batch.input);
          loss_sum += objective.loss(output, batch.target).item<double>() *
                      static_cast<double>(pass.size());
          if (evaluation.has_accuracy) correct += objective.correct(output, batch.target);
          predictions += batch.target.numel();
        }
        evaluation.samples = test->size();
        evaluation.loss = loss_sum / static_cast<double>(evaluation.samples);
        if (evaluation.has_accuracy) {
          evaluation.accuracy = static_cast<double>(correct) / static_cast<double>(predictions);
        }
        return evaluation;
      });
  task_.module().train();
  return result;
}

}  // namespace torchps
