#include "torchps/worker/objective.h"

#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

// Larger confusion matrices would cost too much memory.
constexpr int64_t kMaxClassesOfF1 = 1000;

// Limit on the scores in a state of "auc": 24 MiB.
constexpr size_t kMaxScores = size_t{1} << 20;

// The number of samples with one score, as in a state of "auc".
struct ScoreCount {
  double score = 0;
  double negatives = 0;
  double positives = 0;

  double samples() const { return negatives + positives; }
  void Add(const ScoreCount& other) {
    negatives += other.negatives;
    positives += other.positives;
  }
};

// Returns the distinct scores in `state` in ascending order.
std::vector<ScoreCount> SortedScores(const std::vector<double>& state) {
  std::vector<ScoreCount> counts;
  for (size_t i = 0; i < state.size(); i += 3) {
    counts.push_back({state[i], state[i + 1], state[i + 2]});
  }
  std::sort(counts.begin(), counts.end(),
            [](const ScoreCount& a, const ScoreCount& b) { return a.score < b.score; });
  size_t last = 0;
  for (size_t i = 1; i < counts.size(); ++i) {
    if (counts[i].score == counts[last].score) {
      counts[last].Add(counts[i]);
    } else {
      counts[++last] = counts[i];
    }
  }
  counts.resize(std::min(counts.size(), last + 1));
  return counts;
}

// Merges neighboring sorted scores until at most half of kMaxScores are left. Each merged score
// gets about the same number of samples, so that few pairs become ties.
std::vector<ScoreCount> MergedScores(const std::vector<ScoreCount>& counts) {
  double samples = 0;
  for (const ScoreCount& count : counts) samples += count.samples();
  const double most = 4 * samples / kMaxScores;
  std::vector<ScoreCount> merged;
  for (const ScoreCount& count : counts) {
    if (merged.empty() || merged.back().samples() + count.samples() > most) {
      merged.push_back(count);
    } else {
      merged.back().Add(count);
    }
  }
  return merged;
}

std::vector<double> ReadState(const std::vector<ScoreCount>& counts) {
  std::vector<double> state;
  for (const ScoreCount& count : counts) {
    state.insert(state.end(), {count.score, count.negatives, count.positives});
  }
  return state;
}

absl::Status CheckScalar(const torch::Tensor& loss) {
  if (loss.defined() && loss.numel() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the objective's loss has ", loss.defined() ? loss.numel() : 0,
                   " elements; expected one: the mean over the batch"));
}

// Returns outputs minus targets, [B, K], in the units of the data.
torch::Tensor GetErrors(const Pass& pass) {
  return (pass.Numbers(pass.output()) - pass.Numbers(pass.batch.target)).to(torch::kFloat64);
}

}  // namespace

torch::Tensor Loss::GetPart(double samples, double step_samples) const {
  if (weighted_sum.defined()) return weighted_sum / step_samples;
  return samples == step_samples ? mean : mean * (samples / step_samples);
}

absl::StatusOr<Loss> GetLoss(const Objective& objective, const Pass& pass) {
  Loss loss;
  if (objective.weighted_loss == nullptr) {
    loss.weight = static_cast<double>(pass.batch.input.size(0));
    loss.mean = objective.loss(pass);
    if (absl::Status status = CheckScalar(loss.mean); !status.ok()) return status;
    return loss;
  }
  const WeightedLoss value = objective.weighted_loss(pass);
  if (absl::Status status = CheckScalar(value.sum); !status.ok()) return status;
  if (!(value.weight >= 0 && std::isfinite(value.weight))) {
    return absl::InvalidArgumentError(absl::StrCat("the objective's loss has a weight of ",
                                                   value.weight,
                                                   "; expected a number of at least 0"));
  }
  loss.weight = value.weight;
  loss.weighted_sum = value.sum;
  // If the weight is 0, the batch has no mean loss. Uses the sum, because dividing by 0 gives NaN.
  loss.mean = value.weight > 0 ? value.sum.detach() / value.weight : value.sum.detach();
  return loss;
}

Metric Accuracy() {
  return {"accuracy", [](const Pass& pass) {
            const torch::Tensor& target = pass.batch.target;
            const torch::Tensor right = pass.output().argmax(-1).eq(target).sum();
            return Metric::Part{right.item<double>(), static_cast<double>(target.numel())};
          }};
}

Metric Top5Accuracy() {
  return {"top5_accuracy", [](const Pass& pass) {
            const torch::Tensor& target = pass.batch.target;
            const torch::Tensor best = std::get<1>(pass.output().topk(5, -1));
            const torch::Tensor hits = best.eq(target.unsqueeze(-1)).any(-1).sum();
            return Metric::Part{hits.item<double>(), static_cast<double>(target.numel())};
          }};
}

Metric MacroF1(int64_t classes) {
  Metric metric;
  metric.name = "macro_f1";
  metric.add = [classes](const Pass& pass, std::vector<double>& state) {
    state.resize(classes * classes);
    const torch::Tensor predicted = pass.output().argmax(-1).flatten();
    const torch::Tensor cell =
        (pass.batch.target.flatten() * classes + predicted).to(torch::kCPU).contiguous();
    for (int64_t i = 0; i < cell.numel(); ++i) ++state.at(cell.data_ptr<int64_t>()[i]);
  };
  metric.value = [classes](const std::vector<double>& confusion) {
    double sum = 0;
    int64_t seen = 0;
    for (int64_t c = 0; c < classes; ++c) {
      double targets = 0;
      double predictions = 0;
      for (int64_t other = 0; other < classes; ++other) {
        targets += confusion[c * classes + other];
        predictions += confusion[other * classes + c];
      }
      if (targets + predictions == 0) continue;
      sum += 2 * confusion[c * classes + c] / (targets + predictions);
      ++seen;
    }
    return sum / static_cast<double>(seen);
  };
  return metric;
}

Metric AreaUnderRoc() {
  Metric metric;
  metric.name = "auc";
  metric.add = [](const Pass& pass, std::vector<double>& state) {
    const torch::Tensor& output = pass.output();
    const bool has_both = output.dim() == 2 && output.size(1) == 2;
    const torch::Tensor numbers = output.to(torch::kCPU, torch::kFloat64);
    const torch::Tensor scores =
        (has_both ? numbers.select(1, 1) - numbers.select(1, 0) : numbers.flatten()).contiguous();
    const torch::Tensor target =
        pass.batch.target.flatten().to(torch::kCPU, torch::kFloat64).contiguous();
    TORCH_CHECK(scores.numel() == target.numel(), "auc expects a score of each sample, got ",
                scores.numel(), " of ", target.numel(), " samples");
    for (int64_t i = 0; i < scores.numel(); ++i) {
      const double score = scores.data_ptr<double>()[i];
      const double positive = target.data_ptr<double>()[i];
      // A NaN score cannot be sorted. Stored as the number of negatives instead, it makes the area
      // NaN.
      const bool is_nan = std::isnan(score);
      state.insert(state.end(), {is_nan ? 0 : score, is_nan ? score : 1 - positive, positive});
    }
    if (state.size() > 3 * kMaxScores) state = ReadState(MergedScores(SortedScores(state)));
  };
  metric.value = [](const std::vector<double>& state) {
    double negatives = 0;
    double positives = 0;
    double pairs = 0;
    for (const ScoreCount& count : SortedScores(state)) {
      pairs += count.positives * (negatives + count.negatives / 2);
      negatives += count.negatives;
      positives += count.positives;
    }
    return pairs / (negatives * positives);
  };
  return metric;
}

Metric Perplexity() {
  Metric metric;
  metric.name = "perplexity";
  metric.lower_is_better = true;
  metric.add = [](const Pass& pass, std::vector<double>& state) {
    state.resize(2);
    const torch::Tensor& target = pass.batch.target;
    const auto count = static_cast<double>(target.numel());
    state[0] +=
        count * torch::nn::functional::cross_entropy(pass.output().flatten(0, 1), target.flatten())
                    .item<double>();
    state[1] += count;
  };
  metric.value = [](const std::vector<double>& state) { return std::exp(state[0] / state[1]); };
  return metric;
}

Metric RootMeanSquaredError() {
  Metric metric;
  metric.name = "rmse";
  metric.lower_is_better = true;
  metric.add = [](const Pass& pass, std::vector<double>& state) {
    state.resize(2);
    const torch::Tensor errors = GetErrors(pass);
    state[0] += errors.square().sum().item<double>();
    state[1] += static_cast<double>(errors.numel());
  };
  metric.value = [](const std::vector<double>& state) { return std::sqrt(state[0] / state[1]); };
  return metric;
}

Metric MeanAbsoluteError() {
  return {
      "mae",
      [](const Pass& pass) {
        const torch::Tensor errors = GetErrors(pass);
        return Metric::Part{errors.abs().sum().item<double>(), static_cast<double>(errors.numel())};
      },
      /*lower_is_better=*/true};
}

Metric R2() {
  Metric metric;
  metric.name = "r2";
  // Computed from scaled numbers, because R2 does not depend on units and squares of large numbers
  // lose digits.
  metric.add = [](const Pass& pass, std::vector<double>& state) {
    const auto rows = [](const torch::Tensor& numbers) {
      return numbers.to(torch::kCPU, torch::kFloat64).reshape({numbers.size(0), -1});
    };
    const torch::Tensor target = rows(pass.batch.target);
    const torch::Tensor output = rows(pass.output());
    const int64_t numbers = target.size(1);
    state.resize(1 + 3 * numbers);
    const torch::Tensor sums =
        torch::stack({target.sum(0), target.square().sum(0), (output - target).square().sum(0)})
            .contiguous();
    state[0] += static_cast<double>(target.size(0));
    for (int64_t i = 0; i < 3 * numbers; ++i) state[1 + i] += sums.data_ptr<double>()[i];
  };
  metric.value = [](const std::vector<double>& state) {
    const size_t numbers = (state.size() - 1) / 3;
    double sum = 0;
    for (size_t k = 0; k < numbers; ++k) {
      const double target = state[1 + k];
      const double squares = state[1 + numbers + k];
      const double errors = state[1 + 2 * numbers + k];
      sum += 1 - errors / (squares - target * target / state[0]);
    }
    return sum / static_cast<double>(numbers);
  };
  return metric;
}

Objective CrossEntropy(int64_t classes) {
  std::vector<Metric> metrics = {Accuracy()};
  if (classes == 2) metrics.push_back(AreaUnderRoc());
  if (classes > 5) metrics.push_back(Top5Accuracy());
  if (classes > 0 && classes <= kMaxClassesOfF1) metrics.push_back(MacroF1(classes));
  return {[](const torch::Tensor& output, const torch::Tensor& target) {
            return torch::nn::functional::cross_entropy(output, target);
          },
          std::move(metrics)};
}

Objective NextByteCrossEntropy() {
  return {[](const torch::Tensor& output, const torch::Tensor& target) {
            return torch::nn::functional::cross_entropy(output.flatten(0, 1), target.flatten());
          },
          {Accuracy(), Perplexity()}};
}

Objective MeanSquaredError() {
  return {[](const torch::Tensor& output, const torch::Tensor& target) {
            // mse_loss would broadcast {B} against {B, 1} into {B, B} and only warn.
            TORCH_CHECK(output.sizes() == target.sizes(),
                        "mean squared error needs equal shapes, got an output shaped ",
                        output.sizes(), " and a target shaped ", target.sizes());
            return torch::nn::functional::mse_loss(output, target);
          },
          {RootMeanSquaredError(), MeanAbsoluteError(), R2()}};
}

}  // namespace torchps
