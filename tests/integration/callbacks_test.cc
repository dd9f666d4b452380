// Tests the optional callbacks and settings of a Task in complete jobs.

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/modules/linear.h"
#include "torch/utils.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/worker/slot/run_worker.h"

namespace torchps::callbacks_test {

using ::testing::HasSubstr;

// Sample i consists of the numbers i / 64 and 1 - i / 64, as two inputs. The two targets are their
// sum and their difference.
class TwoInputs final : public Dataset {
 public:
  explicit TwoInputs(int64_t rows_too_many = 0) : rows_too_many_(rows_too_many) {}
  int64_t size() const override { return 64; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const torch::Tensor a =
        torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()), torch::kInt64)
            .to(torch::kFloat32)
            .div(64)
            .unsqueeze(1);
    const torch::Tensor b = 1 - a;
    const auto rows = static_cast<int64_t>(indices.size()) + rows_too_many_;
    return Batch{a, a + b, {b}, {(a - b).expand({a.size(0), 1}).resize_({rows, 1})}};
  }

 private:
  const int64_t rows_too_many_;
};

// Repeats one sample in several evaluation batches. The first evaluation batch requests a stop.
class StoppingTestSet final : public Dataset {
 public:
  explicit StoppingTestSet(StopLatch* stop) : stop_(stop) {}
  int64_t size() const override { return 10000; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    // Calls with other indices read samples for the data fingerprint before training.
    if (indices.size() > 1 && indices[1] == indices[0] + 1) {
      stop_->Stop("interrupted");
      ++batches_;
    }
    return TwoInputs().Get(std::vector<int64_t>(indices.size(), 0));
  }
  int batches() const { return batches_; }

 private:
  StopLatch* const stop_;
  mutable int batches_ = 0;
};

struct Net : torch::nn::Module {
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor a, torch::Tensor b) {
    const torch::Tensor both = torch::cat({a, b}, 1);
    return {sum->forward(both), difference->forward(both)};
  }
  torch::nn::Linear sum{register_module("sum", torch::nn::Linear(2, 1))};
  torch::nn::Linear difference{register_module("difference", torch::nn::Linear(2, 1))};
};

torch::Tensor SquaredError(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).square().mean();
}

Objective BothErrors() {
  const auto loss = [](const Pass& pass) {
    return SquaredError(pass.outputs[0], pass.batch.target) +
           SquaredError(pass.outputs[1], pass.batch.more_targets[0]);
  };
  const auto error_of = [](size_t output) {
    return [output](const Pass& pass) {
      const torch::Tensor& target =
          output == 0 ? pass.batch.target : pass.batch.more_targets[output - 1];
      const torch::Tensor off = (pass.outputs[output] - target).abs().sum();
      return Metric::Part{off.item<double>(), static_cast<double>(target.numel())};
    };
  };
  return Objective(loss, {{"off_sum", error_of(0), /*lower_is_better=*/true},
                          {"off_difference", error_of(1), /*lower_is_better=*/true}});
}

class CallbacksTest : public ::testing::Test {
 protected:
  // Trains one worker to the end.
  absl::Status Train(const std::string& overrides, Callbacks callbacks,
                     std::shared_ptr<const Dataset> train = std::make_shared<TwoInputs>(),
                     absl::StatusOr<Objective> objective = BothErrors(),
                     std::shared_ptr<const Dataset> test = std::make_shared<TwoInputs>()) {
    const JobSpec job = *NormalizeJobSpec(*ParseJobText(
        absl::StrCat("optimizer { sgd {} learning_rate: 0.2 } ", overrides), "the test's job"));
    auto cluster = *InProcessCluster::Start(/*servers=*/2, &clock_);
    torch::manual_seed(5);
    DataSource data;
    data.train = std::move(train);
    data.test = std::move(test);
    const Task task(std::make_shared<Net>(), *objective, data, std::move(callbacks));
    WorkerOptions options;
    options.job = job;
    options.servers = cluster->endpoints();
    options.clock = &clock_;
    options.stop = &stop_;
    options.loader_threads = loader_threads_;
    options.print = [this](const std::string& line) { lines_.push_back(line); };
    const absl::Status status = RunWorker(task, options, make_compute_);
    grpc::ClientContext context;
    const auto stub = Coordinator::NewStub(cluster->endpoints()[0].channel);
    EXPECT_TRUE(stub->GetJobStatus(&context, JobStatusRequest(), &status_).ok());
    return status;
  }

  const SteadyClock clock_;
  StopLatch stop_;
  int loader_threads_ = 0;
  // Empty: RunWorker() computes with the task's module.
  MakeCompute make_compute_;
  std::vector<std::string> lines_;
  JobStatus status_;
};

TEST_F(CallbacksTest, TrainsTwoInputsWithTwoLossesAndReportsNamedMetrics) {
  const absl::Status trained = Train(
      "training { epochs: 20 batch_size: 8 best_by: 'off_difference' } "
      "consistency { mode: SYNC }",
      {});
  ASSERT_TRUE(trained.ok()) << trained;
  ASSERT_EQ(status_.evaluation_size(), 20);
  const EvaluationResult& last = status_.evaluation(19);
  ASSERT_EQ(last.metric_size(), 2);
  EXPECT_EQ(last.metric(0).name(), "off_sum");
  EXPECT_EQ(last.metric(1).name(), "off_difference");
  EXPECT_TRUE(last.metric(1).lower_is_better());
  EXPECT_LT(last.metric(1).value(), status_.evaluation(0).metric(1).value());
  EXPECT_LT(last.loss(), 0.01);
  bool told = false;
  for (const std::string& line : lines_) told = told || line.find(" off_sum=0.") != line.npos;
  EXPECT_TRUE(told) << "psctl parses the metrics in the worker's output";
}

TEST_F(CallbacksTest, CallsBackForEachStepEachEpochAndTheEnd) {
  std::vector<int64_t> steps;
  std::vector<int> epochs;
  double told = 0;
  double at_the_end = -1;
  Callbacks callbacks;
  callbacks.on_step = [&](const Callbacks::Step& step) {
    steps.push_back(step.step);
    EXPECT_EQ(step.samples, 16);
    EXPECT_GT(step.loss, 0);
  };
  callbacks.on_epoch = [&](int epoch, const Evaluation& evaluation) {
    epochs.push_back(epoch);
    told = evaluation.loss;
    EXPECT_EQ(evaluation.metrics.size(), 2u);
    EXPECT_GT(evaluation.metric("off_sum"), 0);
  };
  callbacks.on_end = [&](torch::nn::Module& module) {
    const torch::NoGradGuard no_grad;
    std::vector<int64_t> all(64);
    for (int64_t i = 0; i < 64; ++i) all[i] = i;
    const Batch batch = *TwoInputs().Get(all);
    const auto [sum, difference] =
        module.as<Net>()->forward(batch.input, batch.more_inputs.front());
    at_the_end =
        (SquaredError(sum, batch.target) + SquaredError(difference, batch.more_targets.front()))
            .item<double>();
  };
  ASSERT_TRUE(Train("training { epochs: 2 batch_size: 16 }", callbacks).ok());
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(epochs, (std::vector<int>{1, 2}));
  EXPECT_DOUBLE_EQ(at_the_end, told) << "the module holds the last evaluated values";
}

TEST_F(CallbacksTest, AnExceptionDuringAPushEndsTheWorkerWithItsMessage) {
  make_compute_ = [](const Task&, const Learner::Options&, WorkerSlot*) {
    return ComputeGradient(
        [](const StepWork&, Learner::Observer* observer) -> absl::StatusOr<Learner::Gradient> {
          EXPECT_TRUE(observer->BeforeGradientAndBlocks(absl::ZeroDuration()).ok());
          throw std::runtime_error("no more memory");
        });
  };
  EXPECT_EQ(Train("", {}), absl::InternalError("a training step failed: no more memory"));
}

TEST_F(CallbacksTest, AStopInterruptsAnEvaluation) {
  const auto test = std::make_shared<StoppingTestSet>(&stop_);
  int epochs = 0;
  Callbacks callbacks;
  callbacks.on_epoch = [&](int, const Evaluation&) { ++epochs; };
  const absl::Status trained = Train("training { epochs: 2 batch_size: 16 }", callbacks,
                                     std::make_shared<TwoInputs>(), BothErrors(), test);
  EXPECT_EQ(trained, absl::CancelledError("interrupted"));
  EXPECT_EQ(test->batches(), 1) << "of 40";
  EXPECT_EQ(epochs, 0) << "a stopped evaluation is not reported";
}

// For each batch that augmentation receives: the first number of the first input, and a random
// number drawn there.
using Seen = std::vector<std::pair<float, float>>;

TEST_F(CallbacksTest, SamplesKeepTheirOrderAndAugmentationIsDeterministic) {
  const auto seen_by = [&](const std::string& overrides) {
    Seen seen;
    Callbacks callbacks;
    callbacks.augment = [&](Batch batch, torch::Generator generator) {
      const torch::Tensor draw = torch::rand({1}, generator);
      seen.emplace_back(batch.input[0][0].item<float>(), draw.item<float>());
      return batch;
    };
    EXPECT_TRUE(
        Train(absl::StrCat("training { epochs: 2 batch_size: 16 shuffle: false } ", overrides),
              callbacks)
            .ok());
    return seen;
  };
  const Seen seen = seen_by("consistency { mode: ASYNC }");
  ASSERT_EQ(seen.size(), 8u);
  std::set<float> draws;
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].first, 0.25f * static_cast<float>(i % 4));
    draws.insert(seen[i].second);
  }
  EXPECT_EQ(draws.size(), 8u) << "each epoch draws again";
  EXPECT_EQ(seen_by("consistency { mode: SYNC }"), seen) << "independent of the lease boundaries";
  EXPECT_NE(seen_by("seed: 2"), seen);
}

TEST_F(CallbacksTest, AnyNumberOfLoaderThreadsPreparesTheSameBatches) {
  const auto losses_with = [&](int loader_threads) {
    loader_threads_ = loader_threads;
    std::vector<double> losses;
    Callbacks callbacks;
    callbacks.augment = [](Batch batch, torch::Generator generator) {
      batch.input += 0.1 * torch::rand(batch.input.sizes(), generator);
      return batch;
    };
    callbacks.on_step = [&](const Callbacks::Step& step) { losses.push_back(step.loss); };
    EXPECT_TRUE(Train("training { epochs: 3 batch_size: 5 accumulate: 2 } "
                      "consistency { mode: SYNC }",
                      callbacks)
                    .ok());
    return losses;
  };
  const std::vector<double> losses = losses_with(0);
  EXPECT_EQ(losses.size(), 21u);
  EXPECT_EQ(losses_with(1), losses);
  EXPECT_EQ(losses_with(3), losses);
}

TEST_F(CallbacksTest, ReportsErrorsOfDataMetricsLossAndCallbacksInOneSentence) {
  EXPECT_EQ(Train("", {}, std::make_shared<TwoInputs>(/*rows_too_many=*/1)).message(),
            "the dataset was asked for 32 samples, and the batch's more_targets has 33 rows");
  EXPECT_EQ(
      Train("training { best_by: 'accuracy' }", {}).message(),
      "training.best_by is \"accuracy\"; this program measures loss, off_difference, off_sum");
  const auto twice = [](const Pass&) { return Metric::Part{0, 1}; };
  EXPECT_THAT(std::string(Train("", {}, std::make_shared<TwoInputs>(),
                                Objective([](const Pass& pass) { return pass.outputs[0].mean(); },
                                          {{"a", twice}, {"a", twice}}))
                              .message()),
              HasSubstr("two metrics named 'a'"));
  EXPECT_EQ(Train("", {}, std::make_shared<TwoInputs>(),
                  Objective([](const Pass& pass) { return pass.outputs[0]; }))
                .message(),
            "the objective's loss has 16 elements; expected one: the mean over the batch");
  Callbacks callbacks;
  callbacks.on_step = [](const Callbacks::Step&) { throw std::runtime_error("no more disk"); };
  EXPECT_EQ(Train("", callbacks).message(), "on_step failed: no more disk");
  callbacks.on_step = [](const Callbacks::Step&) { throw "no more disk"; };
  EXPECT_EQ(Train("", callbacks).message(), "on_step failed: no more disk");
}

}  // namespace torchps::callbacks_test
