#include "torchps/worker/model_use.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/types.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/slot/dry_run.h"
#include "torchps/worker/task.h"

namespace torchps {
namespace {

// Has enough samples for several evaluation batches.
class ModelUseTest : public ::testing::Test {
 protected:
  const TensorDataset samples_{torch::randn({2000, 4}), torch::randint(4, {2000})};
  const Task task_{torch::nn::Linear(4, 4), CrossEntropy(), DataSource()};
  StopLatch stop_;
};

TEST_F(ModelUseTest, AStoppedEvaluationHasNoResult) {
  EXPECT_TRUE(Evaluate(task_, &samples_, torch::kCPU, TrainingSpec::FLOAT32, &stop_).ok());
  stop_.Stop("interrupted");
  const auto evaluation = Evaluate(task_, &samples_, torch::kCPU, TrainingSpec::FLOAT32, &stop_);
  EXPECT_EQ(evaluation.status(), absl::CancelledError("interrupted"));
}

TEST_F(ModelUseTest, AStoppedPredictionEndsAfterItsBatch) {
  int batches = 0;
  const auto sink = [&](const Batch&, const torch::Tensor&) {
    ++batches;
    stop_.Stop("interrupted");
    return absl::OkStatus();
  };
  EXPECT_EQ(Predict(task_, samples_, torch::kCPU, TrainingSpec::FLOAT32, sink, &stop_),
            absl::CancelledError("interrupted"));
  EXPECT_EQ(batches, 1);
}

// Module whose output is its input.
struct Echo : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) { return input; }
};

// Evaluates a model whose outputs are `outputs`, in batches of the evaluation size.
Evaluation GetEvaluation(const Objective& objective, const torch::Tensor& outputs,
                         const torch::Tensor& targets, const Preprocessing& preprocessing = {}) {
  DataSource data;
  data.preprocessing = preprocessing;
  data.test = std::make_shared<TensorDataset>(outputs, targets);
  const Task task(std::make_shared<Echo>(), objective, data);
  const auto evaluation = Evaluate(task, data.test.get(), torch::kCPU);
  EXPECT_TRUE(evaluation.ok()) << evaluation.status();
  return *evaluation;
}

TEST(MetricsTest, RegressionMetricsUseTheTablesUnits) {
  torch::manual_seed(3);
  Preprocessing scale;
  scale.target_columns = {"price", "area"};
  scale.target_mean = {1e5, 50};
  scale.target_deviation = {2e4, 10};
  const torch::Tensor targets = torch::randn({1000, 2});
  const torch::Tensor outputs = targets + torch::tensor({0.5f, -0.1f});
  const Evaluation evaluation = GetEvaluation(MeanSquaredError(), outputs, targets, scale);
  EXPECT_NEAR(evaluation.loss, (0.25 + 0.01) / 2, 1e-6);
  EXPECT_NEAR(evaluation.metric("mae"), (1e4 + 1) / 2, 0.1);
  EXPECT_NEAR(evaluation.metric("rmse"), std::sqrt((1e8 + 1) / 2), 0.1);
  const torch::Tensor distance = (targets - targets.mean(0)).square().mean(0);
  const double r2 = 1 - (0.25 / distance[0].item<double>() + 0.01 / distance[1].item<double>()) / 2;
  EXPECT_NEAR(evaluation.metric("r2"), r2, 1e-5);
}

TEST(MetricsTest, ReportsTopFiveF1AndConfusionMatrix) {
  // Class 0 is always right. Class 1 is mistaken for 0 in one of three samples. Class 6 is never
  // right.
  const torch::Tensor targets = torch::tensor({0, 0, 1, 1, 1, 6}, torch::kInt64);
  const torch::Tensor answers = torch::tensor({0, 0, 1, 1, 0, 0}, torch::kInt64);
  const torch::Tensor outputs =
      torch::one_hot(answers, 7).to(torch::kFloat32) - 0.01 * torch::arange(7).to(torch::kFloat32);
  const Evaluation evaluation = GetEvaluation(CrossEntropy(7), outputs, targets);
  EXPECT_NEAR(evaluation.metric("accuracy"), 4.0 / 6, 1e-9);
  EXPECT_NEAR(evaluation.metric("top5_accuracy"), 5.0 / 6, 1e-9);
  // The F1 values of classes 0, 1 and 6 are 4 / 6, 4 / 5 and 0. The other classes do not occur.
  EXPECT_NEAR(evaluation.metric("macro_f1"), (4.0 / 6 + 4.0 / 5) / 3, 1e-9);
  const std::vector<double>& confusion = evaluation.metrics.back().state;
  ASSERT_EQ(confusion.size(), 49u);
  EXPECT_EQ(confusion[1 * 7 + 0], 1);
  EXPECT_EQ(confusion[6 * 7 + 0], 1);
}

// Adds a batch with one score per sample to the state of `metric`.
void AddScores(const Metric& metric, const torch::Tensor& scores, const torch::Tensor& targets,
               std::vector<double>& state) {
  Pass pass;
  pass.outputs = {scores};
  pass.batch.target = targets;
  metric.add(pass, state);
}

TEST(MetricsTest, RocAreaCountsPairsAndHalvesTies) {
  // The example of scikit-learn's roc_auc_score.
  const torch::Tensor scores = torch::tensor({0.1, 0.4, 0.35, 0.8});
  const torch::Tensor targets = torch::tensor({0, 0, 1, 1}, torch::kInt64);
  const Objective objective = CrossEntropy(2);
  EXPECT_NEAR(GetEvaluation(objective, torch::stack({-scores, scores}, 1), targets).metric("auc"),
              0.75, 1e-12);
  // Over the scores of both workers, 2.5 of 6 pairs are in the right order; a tie counts half.
  const Metric auc = AreaUnderRoc();
  std::vector<double> state;
  std::vector<double> other;
  AddScores(auc, torch::tensor({0.3, 0.7, 0.5}), torch::tensor({0, 1, 0}), state);
  EXPECT_NEAR(auc.value(state), 1, 1e-12);
  AddScores(auc, torch::tensor({{0.3}, {0.1}}), torch::tensor({1, 1}), other);
  EXPECT_TRUE(std::isnan(auc.value(other))) << "only one class";
  state.insert(state.end(), other.begin(), other.end());
  EXPECT_NEAR(auc.value(state), 2.5 / 6, 1e-12);
  AddScores(auc, torch::tensor({NAN}), torch::tensor({1}), state);
  EXPECT_TRUE(std::isnan(auc.value(state)));
}

TEST(MetricsTest, RocAreaOfManyScoresUsesBoundedMemory) {
  constexpr int64_t kBatch = 300'000;
  constexpr int64_t kSamples = 5 * kBatch;
  // The classes overlap: three of four scores in the upper half belong to class 1.
  const auto class_of = [](const torch::Tensor& score) {
    return torch::where(score < kSamples / 2, score % 4 == 0, score % 4 != 0).to(torch::kInt64);
  };
  const torch::Tensor ranks = torch::arange(kSamples);
  const torch::Tensor labels = class_of(ranks);
  const torch::Tensor negatives = (1 - labels).cumsum(0);
  const double pairs = (negatives * labels).sum().item<double>();
  const double expected = pairs / (labels.sum() * (1 - labels).sum()).item<double>();

  const Metric auc = AreaUnderRoc();
  std::vector<double> state;
  const torch::Tensor scattered = ranks * 7919 % kSamples;
  for (const torch::Tensor& scores : scattered.split(kBatch)) {
    AddScores(auc, scores, class_of(scores), state);
    EXPECT_LE(state.size(), size_t{3} << 20);
  }
  EXPECT_NEAR(auc.value(state), expected, 2e-6);
  EXPECT_NEAR(expected, 0.75, 0.001);
}

TEST(MetricsTest, AWeightedLossDividesByTheTotalWeight) {
  // 300 samples form two batches. Samples from 270 on have weight 0, so the second batch has a
  // lower total weight.
  const torch::Tensor targets = torch::arange(300).to(torch::kFloat32).unsqueeze(1);
  const Objective objective([](const torch::Tensor& output, const torch::Tensor& target) {
    const torch::Tensor counts = target.lt(270).to(torch::kFloat32);
    return WeightedLoss{(output * counts).sum(), counts.sum().item<double>()};
  });
  EXPECT_NEAR(GetEvaluation(objective, targets, targets).loss, 269.0 / 2, 1e-6);
}

// Returns TryOut()'s lines and status for an objective.
std::vector<std::string> Tried(const Objective& objective, int workers, absl::Status* status) {
  DataSource data;
  data.train = std::make_shared<TensorDataset>(torch::rand({20, 4}), torch::randint(4, {20}));
  data.test = data.train;
  const Task task(torch::nn::Linear(4, 4), objective, data);
  JobSpec job;
  job.set_workers(workers);
  job.mutable_training()->set_evaluate(true);
  std::vector<std::string> lines;
  *status = TryOut(task, job, [&](const std::string& line) { lines.push_back(line); }).status();
  return lines;
}

TEST(TryOutTest, WarnsAboutALossThatIsNotAMeanOverSamples) {
  const auto sum = [](const torch::Tensor& output, const torch::Tensor&) {
    return output.square().sum();
  };
  const auto noise = [](const torch::Tensor& output, const torch::Tensor&) {
    return (output + torch::randn_like(output)).square().mean();
  };
  absl::Status status;
  ASSERT_EQ(Tried(Objective(sum), 2, &status).size(), 1u);
  EXPECT_THAT(Tried(Objective(sum), 2, &status).front(),
              ::testing::HasSubstr("the loss is not a mean over samples"));
  EXPECT_TRUE(Tried(Objective(sum), 1, &status).empty());
  EXPECT_TRUE(Tried(CrossEntropy(4), 2, &status).empty());
  EXPECT_TRUE(Tried(Objective(noise), 2, &status).empty());
  EXPECT_TRUE(status.ok()) << status;
}

TEST(TryOutTest, FindsAThrowingMetricBeforeTheFirstStep) {
  Objective objective = CrossEntropy();
  objective.metrics.push_back(
      {"broken", [](const Pass&) -> Metric::Part { throw std::runtime_error("no such column"); }});
  absl::Status status;
  Tried(objective, 1, &status);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("no such column"));
}

// Returns the lines and status of a dry run with two workers.
std::vector<std::string> DryRunLines(const Objective& objective, absl::Status* status) {
  const SteadyClock clock;
  WorkerOptions options;
  options.job = *NormalizeJobSpec(*ParseJobText(
      "workers: 2 optimizer { sgd {} learning_rate: 1 } training { batch_size: 12 }", "job"));
  options.clock = &clock;
  std::vector<std::string> lines;
  options.print = [&](const std::string& line) { lines.push_back(line); };
  DataSource data;
  data.train = std::make_shared<TensorDataset>(torch::ones({20, 4}), torch::zeros({20, 1}));
  data.test = std::make_shared<TensorDataset>(torch::ones({18, 4}), torch::ones({18, 1}));
  torch::nn::Linear linear(4, 1);
  torch::nn::init::constant_(linear->weight, 0.5);
  torch::nn::init::zeros_(linear->bias);
  *status = DryRun(Task(linear, objective, data), options);
  return lines;
}

TEST(DryRunTest, TriesOneBatchAndSixteenTestSamples) {
  absl::Status status;
  EXPECT_THAT(DryRunLines(MeanSquaredError(), &status),
              ::testing::ElementsAre(::testing::HasSubstr("loss 4 on 6 training samples"),
                                     ::testing::HasSubstr("loss 1 on 16 test samples"),
                                     ::testing::HasSubstr("nothing was trained")));
  EXPECT_TRUE(status.ok()) << status;
}

TEST(DryRunTest, FindsNonFiniteLossesAndMissingGradients) {
  absl::Status status;
  DryRunLines(Objective([](const torch::Tensor& output, const torch::Tensor&) {
                return output.detach().mean();
              }),
              &status);
  EXPECT_FALSE(status.ok());
  DryRunLines(Objective([](const torch::Tensor& output, const torch::Tensor& target) {
                return (output - output).log().mean() + target.mean();
              }),
              &status);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("loss of the first batch is"));
}

}  // namespace
}  // namespace torchps
