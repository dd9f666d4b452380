// Tests the model that a job leaves in the first server's directory. Whole workers run as threads
// on servers inside this process.

#include <stdlib.h>

#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/linear.h"
#include "torch/utils.h"
#include "torchps/checkpoint/safetensors_file.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/storage/file_system.h"
#include "torchps/worker/slot/run_worker.h"
#include "torchps/worker/state_file.h"

namespace torchps::kept_model_test {

// Regression samples: the target is a fixed linear function of the input.
class Line final : public Dataset {
 public:
  explicit Line(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  DataShape shape() const override { return {}; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const auto rows = static_cast<int64_t>(indices.size());
    Batch batch{torch::empty({rows, 3}), torch::Tensor()};
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < 3; ++i) {
        batch.input[row][i] = static_cast<double>((indices[row] * (i + 3)) % 11) / 11.0;
      }
    }
    batch.target = batch.input.sum(1, /*keepdim=*/true) * 0.5;
    return batch;
  }

 private:
  const int64_t size_;
};

// Holds trained parameters, a frozen one (`scale`), averaged and counting buffers (`norm`), and one
// tensor with two names (`tied`).
struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(3, 3))),
        norm(register_module("norm", torch::nn::BatchNorm1d(3))),
        last(register_module("last", torch::nn::Linear(3, 1))) {
    scale = register_parameter("scale", torch::full({3}, 0.75), /*requires_grad=*/false);
    tied = register_parameter("tied", first->weight);
  }
  torch::Tensor forward(const torch::Tensor& input) {
    return last->forward(norm->forward(first->forward(input) * scale));
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;
  torch::Tensor scale, tied;
};

double GetLoss(Net& net, const Dataset& data) {
  std::vector<int64_t> all(data.size());
  for (int64_t i = 0; i < data.size(); ++i) all[i] = i;
  const Batch batch = *data.Get(all);
  net.eval();
  const torch::NoGradGuard no_grad;
  return torch::mse_loss(net.forward(batch.input), batch.target).item<double>();
}

class KeptModelTest : public ::testing::Test {
 protected:
  KeptModelTest() {
    std::string name = absl::StrCat(getenv("TEST_TMPDIR"), "/run.XXXXXX");
    dir_ = mkdtemp(name.data());
  }

  // Trains with two workers to the end. `overrides` is job text.
  JobStatus Train(const std::string& overrides, std::shared_ptr<const Dataset> test) {
    const JobSpec job = *NormalizeJobSpec(*ParseJobText(
        absl::StrCat("name: 'line' workers: 2 optimizer { sgd {} learning_rate: 0.1 } ", overrides),
        "the test's job"));
    auto cluster = *InProcessCluster::Start(/*servers=*/2, &clock_, dir_);
    // Makes the tasks before the first thread starts, because all threads share torch's generator,
    // and a worker that joins seeds it.
    std::vector<Task> tasks;
    for (int slot = 0; slot < 2; ++slot) {
      torch::manual_seed(5);
      DataSource data;
      data.train = std::make_shared<Line>(88);
      data.test = test;
      data.metadata = {{"input_mean", "[0]"}};
      tasks.emplace_back(std::make_shared<Net>(), MeanSquaredError(), data);
    }
    std::vector<std::thread> threads;
    StopLatch stop;
    for (const Task& task : tasks) {
      threads.emplace_back([&] {
        at::set_num_threads(1);
        WorkerOptions options;
        options.job = job;
        options.servers = cluster->endpoints();
        options.clock = &clock_;
        options.stop = &stop;
        const absl::Status status = RunWorker(task, options);
        EXPECT_TRUE(status.ok()) << status;
      });
    }
    for (std::thread& thread : threads) thread.join();
    grpc::ClientContext context;
    JobStatus status;
    const auto stub = Coordinator::NewStub(cluster->endpoints()[0].channel);
    EXPECT_TRUE(stub->GetJobStatus(&context, JobStatusRequest(), &status).ok());
    EXPECT_TRUE(cluster->server(0).TakeLastCheckpoint(absl::Minutes(1)).ok());
    return status;
  }

  std::string Path(const std::string& name) const { return absl::StrCat(dir_, "/", name); }

  std::map<std::string, std::string> Metadata(const std::string& name) {
    const auto reader = SafetensorsReader::Open(files_.get(), Path(name));
    EXPECT_TRUE(reader.ok()) << reader.status();
    return reader.ok() ? (*reader)->metadata() : std::map<std::string, std::string>();
  }

  const SteadyClock clock_;
  const std::unique_ptr<FileSystem> files_ = MakePosixFileSystem();
  std::string dir_;
};

TEST_F(KeptModelTest, TheFinalModelIsTheLastEvaluatedModel) {
  for (const std::string mode : {"ASYNC", "SYNC"}) {
    std::filesystem::remove_all(dir_);
    const auto test = std::make_shared<Line>(40);
    const JobStatus status =
        Train(absl::StrCat("training { epochs: 3 batch_size: 8 } consistency { mode: ", mode, " }"),
              test);
    ASSERT_EQ(status.evaluation_size(), 3);
    const EvaluationResult& last = status.evaluation(2);
    EXPECT_EQ(last.metric_size(), 3);

    torch::manual_seed(99);
    Net plain;
    plain.scale.fill_(0);
    const absl::Status loaded = LoadState(plain, Path("model.safetensors"));
    ASSERT_TRUE(loaded.ok()) << loaded;
    EXPECT_EQ(GetLoss(plain, *test), last.loss()) << mode;
    EXPECT_EQ(plain.scale[0].item<float>(), 0.75f) << "the file contains the frozen parameter";
    EXPECT_GT(plain.norm->num_batches_tracked.item<int64_t>(), 0);

    std::map<std::string, std::string> metadata = Metadata("model.safetensors");
    EXPECT_EQ(metadata["job"], "line");
    EXPECT_EQ(metadata["epoch"], "3");
    EXPECT_EQ(metadata["input_mean"], "[0]");
    double told = 0;
    ASSERT_TRUE(absl::SimpleAtod(metadata["test_loss"], &told));
    EXPECT_EQ(told, last.loss());
    EXPECT_EQ(metadata.count("test_accuracy"), 0u);
  }
}

TEST_F(KeptModelTest, TheBestModelHasTheLowestLoss) {
  const auto test = std::make_shared<Line>(40);
  const JobStatus status = Train("training { epochs: 4 batch_size: 8 }", test);
  double best = std::numeric_limits<double>::infinity();
  for (const EvaluationResult& result : status.evaluation()) best = std::min(best, result.loss());
  Net plain;
  ASSERT_TRUE(LoadState(plain, Path("best.safetensors")).ok());
  EXPECT_EQ(GetLoss(plain, *test), best);
}

TEST_F(KeptModelTest, AJobWithoutEvaluationsKeepsItsModel) {
  const JobStatus status = Train("training { epochs: 2 batch_size: 8 evaluate: false }", nullptr);
  EXPECT_EQ(status.phase(), JobStatus::DONE);
  Net plain;
  const absl::Status loaded = LoadState(plain, Path("model.safetensors"));
  EXPECT_TRUE(loaded.ok()) << loaded;
  EXPECT_LT(GetLoss(plain, Line(40)), 0.1);
  EXPECT_FALSE(std::filesystem::exists(Path("best.safetensors")));
  EXPECT_EQ(Metadata("model.safetensors").count("test_loss"), 0u);
}

TEST_F(KeptModelTest, AJobWithoutATestSetEvaluatesNoSamplesAndKeepsItsModel) {
  const JobStatus status = Train("training { epochs: 2 batch_size: 8 }", nullptr);
  ASSERT_EQ(status.evaluation_size(), 2);
  EXPECT_EQ(status.evaluation(1).samples(), 0);
  Net plain;
  EXPECT_TRUE(LoadState(plain, Path("model.safetensors")).ok());
}

TEST_F(KeptModelTest, ConstantsHoldTheFrozenParameterTheCounterAndTheTiedName) {
  Train("training { epochs: 1 batch_size: 8 }", std::make_shared<Line>(40));
  const auto reader = SafetensorsReader::Open(files_.get(), Path("constants.safetensors"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<std::string> names;
  for (const TensorInfo& info : (*reader)->tensors()) names.push_back(info.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"norm.num_batches_tracked", "scale"}));
  EXPECT_EQ(Metadata("constants.safetensors")["tied"], R"({"first.weight":"tied"})");
}

}  // namespace torchps::kept_model_test
