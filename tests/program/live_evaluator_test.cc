#include "torchps/program/live_evaluator.h"

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "torch/nn/modules/linear.h"
#include "torch/types.h"
#include "torchps/common/mutex.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/worker/slot/run_worker.h"

namespace torchps {
namespace {

constexpr int64_t kTrain = 96;
constexpr int64_t kTest = 40;
constexpr int64_t kEpochs = 3;
constexpr int64_t kBatch = 8;

constexpr char kJob[] = R"(
  workers: 1
  training { epochs: 3 batch_size: 8 }
  optimizer { sgd {} learning_rate: 0.5 }
  wire { block_bytes: 64 }
)";

// Points of two classes, separated by the sign of the first coordinate.
class Points final : public Dataset {
 public:
  explicit Points(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  DataShape shape() const override { return DataShape(); }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const auto rows = static_cast<int64_t>(indices.size());
    Batch batch{torch::zeros({rows, 2}), torch::zeros({rows}, torch::kInt64)};
    for (int64_t row = 0; row < rows; ++row) {
      const bool right = indices[row] % 2 == 1;
      batch.input[row][0] = right ? 1.0 : -1.0;
      batch.target[row] = right ? 1 : 0;
    }
    return batch;
  }

 private:
  const int64_t size_;
};

struct Net : torch::nn::Module {
  Net() : linear(register_module("linear", torch::nn::Linear(2, 2))) {}
  torch::Tensor forward(const torch::Tensor& input) {
    if (!is_training() && on_evaluation != nullptr) on_evaluation();
    return linear->forward(input);
  }
  torch::nn::Linear linear;
  std::function<void()> on_evaluation;
};

DataSource Data() {
  DataSource data;
  data.train = std::make_shared<Points>(kTrain);
  data.test = std::make_shared<Points>(kTest);
  return data;
}

// Blocks callers of Await() until Happen() is called.
class Event {
 public:
  void Happen() {
    MutexLock lock(&mutex_);
    happened_ = true;
    changed_.SignalAll();
  }
  void Await() {
    MutexLock lock(&mutex_);
    while (!happened_) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool happened_ ABSL_GUARDED_BY(mutex_) = false;
};

class JobWatchTest : public ::testing::Test {
 protected:
  JobWatchTest() : cluster_(*InProcessCluster::Start(/*servers=*/2, &clock_)) {
    torch::manual_seed(1);
    watch_.servers = cluster_->endpoints();
    watch_.clock = &clock_;
    watch_.stop = &stop_;
    watch_.on_measured = [this](const Measured& measured) {
      measured_.push_back(measured);
      return absl::OkStatus();
    };
  }

  // Runs one worker until the job ends. `before_step` is called before each step.
  absl::Status Train(const std::function<void()>& before_step) {
    WorkerOptions options;
    options.job = job_;
    options.servers = cluster_->endpoints();
    options.clock = &clock_;
    options.stop = &stop_;
    options.handicap.slow = 2;
    options.handicap.wait = [&](absl::Duration) { before_step(); };
    return RunWorker(Task(std::make_shared<Net>(), CrossEntropy(), Data()), options);
  }

  JobSpec job_ = *NormalizeJobSpec(*ParseJobText(kJob, "the test's job"));
  SteadyClock clock_;
  StopLatch stop_;
  std::unique_ptr<InProcessCluster> cluster_;
  LiveEvaluatorOptions watch_;
  std::vector<Measured> measured_;
};

TEST_F(JobWatchTest, AMeasurementDescribesTheJobAtTheTimeOfThePull) {
  watch_.every = absl::Hours(1);
  Event measuring;
  Event trained;
  std::thread worker([&] {
    // The worker does not push its first gradient before the first evaluation has pulled values.
    const absl::Status status = Train([&] { measuring.Await(); });
    EXPECT_TRUE(status.ok()) << status;
    trained.Happen();
  });

  const absl::StatusOr<JobStatus> running = AwaitRunningJob(watch_);
  ASSERT_TRUE(running.ok()) << running.status();
  EXPECT_EQ(running->job().training().epochs(), kEpochs);
  const auto module = std::make_shared<Net>();
  module->on_evaluation = [&] {
    measuring.Happen();
    trained.Await();
  };
  const absl::Status watched =
      WatchJob(Task(module, CrossEntropy(), Data()), running->job(), watch_);
  worker.join();
  ASSERT_TRUE(watched.ok()) << watched;

  ASSERT_EQ(measured_.size(), 2) << "one at the start and one when the job has ended";
  EXPECT_EQ(measured_[0].samples, 0);
  EXPECT_EQ(measured_[0].pushes, 0);
  EXPECT_EQ(measured_[0].evaluation.samples, kTest);
  EXPECT_EQ(measured_[1].samples, kEpochs * kTrain);
  EXPECT_EQ(measured_[1].pushes, kEpochs * kTrain / kBatch);
  EXPECT_LT(measured_[0].seconds, measured_[1].seconds);
  EXPECT_LT(measured_[1].evaluation.loss, measured_[0].evaluation.loss);
  EXPECT_EQ(measured_[1].evaluation.metric("accuracy"), 1);
}

TEST_F(JobWatchTest, RefusesToEvaluateAnotherModelThanTheJobs) {
  Event watched;
  std::thread worker([&] {
    const absl::Status status = Train([&] { watched.Await(); });
    EXPECT_TRUE(status.ok()) << status;
  });
  const absl::StatusOr<JobStatus> running = AwaitRunningJob(watch_);
  ASSERT_TRUE(running.ok()) << running.status();
  const absl::Status status =
      WatchJob(Task(std::make_shared<torch::nn::LinearImpl>(2, 200), CrossEntropy(), Data()),
               running->job(), watch_);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  watched.Happen();
  worker.join();
}

TEST_F(JobWatchTest, RefusesAJobWithoutTestSamples) {
  DataSource data;
  data.train = std::make_shared<Points>(kTrain);
  const absl::Status status =
      WatchJob(Task(std::make_shared<Net>(), CrossEntropy(), data), job_, watch_);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(status.message(),
            "the job's data have no test samples; --on_training_data uses the training samples");
}

TEST_F(JobWatchTest, AStopEndsTheWaitForAJob) {
  stop_.Stop("the user had enough");
  EXPECT_TRUE(absl::IsCancelled(AwaitRunningJob(watch_).status()));
}

TEST(MeasuredTest, PrintsALineOfTextAndALineOfJson) {
  Measured measured;
  measured.seconds = 12.25;
  measured.samples = 6400;
  measured.pushes = 200;
  measured.evaluation.samples = 1000;
  measured.evaluation.loss = 0.5;
  measured.evaluation.metrics = {{"accuracy", 0.875, false}, {"rmse", 2, true}};
  EXPECT_EQ(MeasuredText(measured),
            "12.2 s, 6400 samples used, 200 pushes: loss 0.5, accuracy 0.875, rmse 2 on 1000 "
            "samples");
  EXPECT_EQ(nlohmann::json::parse(MeasuredJson(measured)), nlohmann::json::parse(R"({
    "seconds": 12.25, "samples_used": 6400, "pushes": 200, "samples": 1000, "loss": 0.5,
    "metrics": {"accuracy": 0.875, "rmse": 2.0}, "lower_is_better": ["loss", "rmse"]})"));
}

}  // namespace
}  // namespace torchps
