#include "worker/learner.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "common/split_mix64.h"
#include "worker/model_use.h"
#include "worker/torch_error.h"

namespace torchps {
namespace {

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
    : task_(std::move(task)),
      model_(model),
      options_(std::move(options)),
      // Clipping and checking need the whole gradient, and a GPU's reaches the host as a whole.
      early_(!options_.local_steps && !NeedsWholeGradient(options_.training) &&
             model_->device().is_cpu()),
      loader_(task_.data().train, task_.callbacks().augment, options_.loader_threads),
      watch_(model_->layout(), *options_.block_map, model_->parameters()) {}

BatchLoader::Pass Learner::PassAt(const Step& step, size_t begin) const {
  const auto most = static_cast<size_t>(step.batch_size);
  const absl::Span<const int64_t> samples =
      begin < step.samples.size() ? step.samples.subspan(begin, most)
                                  : step.upcoming.subspan(begin - step.samples.size(), most);
  // By the first sample's place in its epoch, so that it does not matter which slot takes it.
  uint64_t seed = options_.seed ^ (static_cast<uint64_t>(step.epoch) << 40) ^
                  static_cast<uint64_t>(step.position + static_cast<int64_t>(begin));
  return {{samples.begin(), samples.end()}, SplitMix64(seed)};
}

absl::StatusOr<Batch> Learner::TakeBatch(const Step& step, size_t begin) {
  const BatchLoader::Pass pass = PassAt(step, begin);
  if (loader_.ahead() > 0) {
    std::vector<BatchLoader::Pass> expected = {pass};
    const size_t known = step.samples.size() + step.upcoming.size();
    for (size_t next = begin + pass.samples.size();
         next < known && expected.size() <= loader_.ahead();
         next += expected.back().samples.size()) {
      expected.push_back(PassAt(step, next));
    }
    loader_.Expect(std::move(expected));
  }
  return loader_.Take(pass);
}

absl::StatusOr<Learner::Gradient> Learner::Compute(const Step& step, Observer* observer) {
  return Guard<Gradient>("a training step", [&]() -> absl::StatusOr<Gradient> {
    const absl::Duration began = options_.clock->Now();
    const absl::Span<const int64_t> samples = step.samples;
    Gradient gradient;
    gradient.samples = static_cast<int64_t>(samples.size());
    absl::Duration observed;
    if (absl::Status status = model_->CheckModule(task_.module()); !status.ok()) return status;
    // Also when something throws.
    const auto disarm = absl::MakeCleanup([this] { watch_.Disarm().IgnoreError(); });
    const auto pass_samples = static_cast<size_t>(step.batch_size);
    for (size_t begin = 0; begin < samples.size(); begin += pass_samples) {
      const absl::Duration asked = options_.clock->Now();
      const absl::Span<const int64_t> pass = samples.subspan(begin, pass_samples);
      absl::StatusOr<Batch> fetched = TakeBatch(step, begin);
      if (!fetched.ok()) return fetched.status();
      gradient.data_time += options_.clock->Now() - asked;
      options_.on_progress();

      const torch::Tensor loss = task_.objective().loss(
          task_.Forward(ToDevice(*std::move(fetched), model_->device()), step.number));
      if (absl::Status status = CheckLoss(loss); !status.ok()) return status;
      if (begin == 0) {
        const absl::Duration told = options_.clock->Now();
        if (absl::Status status = observer->BeforeGradient(told - began - gradient.data_time);
            !status.ok())
          return status;
        observed = options_.clock->Now() - told;
        model_->ZeroGradients();
        watch_.BeginStep();
      }
      if (early_ && begin + pass.size() == samples.size()) {
        watch_.Arm([observer](BlockId block) { observer->OnBlock(block); });
      }
      const auto pass_size = static_cast<double>(pass.size());
      // The mean over all samples is the mean of the passes' means, weighed by their samples.
      if (pass.size() == samples.size()) {
        loss.backward();
      } else {
        (loss * (pass_size / static_cast<double>(samples.size()))).backward();
      }
      gradient.loss_sum += loss.item<double>() * pass_size;
      options_.on_progress();
    }
    if (absl::Status status = watch_.Disarm(); !status.ok()) return status;
    const absl::StatusOr<Finite> finite = options_.local_steps
                                              ? FinishLocalGradient(options_.training, model_)
                                              : FinishGradient(options_.training, model_);
    if (!finite.ok()) return finite.status();
    gradient.finite = *finite;
    if (!watch_.ReachedAll()) {
      if (options_.local_steps) {
        if (absl::Status status = model_->ToHost(); !status.ok()) return status;
      }
      gradient.absent = watch_.Absent(model_->gradients());
    }
    gradient.compute_time = options_.clock->Now() - began - gradient.data_time - observed;
    return gradient;
  });
}

}  // namespace torchps
