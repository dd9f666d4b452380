// Tests whole workers with modules in stages on several devices, on servers inside this process.

#include <ATen/Parallel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/worker/slot/run_worker.h"
#include "torchps/worker/stages/stages.h"

namespace torchps::stages_training_test {

using ::testing::HasSubstr;

constexpr int kSamples = 96;
constexpr int kEpochs = 5;

constexpr char kJob[] = R"(
  seed: 3
  workers: 1
  training { epochs: 5 batch_size: 16 balance: EQUAL global_batch: false }
  optimizer { sgd { momentum: 0.9 } learning_rate: 0.02 }
  consistency { mode: ASYNC prefetch: false }
  wire { block_bytes: 1024 }
)";

JobSpec Job(const std::vector<std::string>& overrides = {}) {
  JobSpec job = *ParseJobText(kJob, "the test's job");
  for (const std::string& assignment : overrides) {
    EXPECT_TRUE(ApplyOverride(&job, assignment).ok()) << assignment;
  }
  return *NormalizeJobSpec(job);
}

// Returns a network of 32, 48, 40 and 10 units in three stages, with the same parameters in each
// call.
Stages NewNet() {
  torch::manual_seed(7);
  const torch::nn::Sequential first(torch::nn::Linear(32, 48), torch::nn::Tanh());
  const torch::nn::Sequential second(torch::nn::Linear(48, 40), torch::nn::Tanh());
  return Stages({first, second, torch::nn::Linear(40, 10)});
}

// Random inputs with classes from a random linear map.
DataSource RandomSamples() {
  torch::manual_seed(8);
  const auto make = [choose = torch::randn({32, 10})](int64_t samples) {
    const torch::Tensor inputs = torch::randn({samples, 32});
    return std::make_shared<TensorDataset>(inputs, inputs.matmul(choose).argmax(1));
  };
  DataSource data;
  data.train = make(kSamples);
  data.test = make(40);
  return data;
}

class StagesTrainingTest : public ::testing::Test {
 protected:
  StagesTrainingTest() { Restart(); }

  void Restart() { cluster_ = *InProcessCluster::Start(/*servers=*/2, &clock_); }

  WorkerOptions Options(const JobSpec& job, int devices) {
    WorkerOptions options;
    options.job = job;
    options.servers = cluster_->endpoints();
    if (devices > 1) options.stage_devices.assign(devices, torch::Device(torch::kCPU));
    options.clock = &clock_;
    options.stop = &stop_;
    return options;
  }

  // Trains one worker per entry of `devices`, each on that many devices. Returns the first worker's
  // values.
  torch::Tensor Train(const JobSpec& job, const std::vector<int>& devices) {
    torch::Tensor learnt;
    // Makes the tasks before the first thread starts, because all threads share torch's generator,
    // and a worker that joins seeds it.
    std::vector<Task> tasks;
    for (size_t i = 0; i < devices.size(); ++i) {
      Callbacks callbacks;
      if (i == 0) {
        callbacks.on_end = [&learnt](torch::nn::Module& module) {
          std::vector<torch::Tensor> parts;
          for (const torch::Tensor& part : module.parameters()) {
            parts.push_back(part.detach().flatten().clone());
          }
          learnt = torch::cat(parts);
        };
      }
      tasks.emplace_back(NewNet(), CrossEntropy(), RandomSamples(), callbacks);
    }
    std::vector<std::thread> threads;
    std::vector<absl::Status> outcomes(devices.size());
    for (size_t i = 0; i < devices.size(); ++i) {
      threads.emplace_back(
          [&task = tasks[i], options = Options(job, devices[i]), &outcome = outcomes[i]] {
            at::set_num_threads(1);
            outcome = RunWorker(task, options);
          });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
    return learnt;
  }

  JobStatus Status() {
    grpc::ClientContext context;
    JobStatus status;
    EXPECT_TRUE(Coordinator::NewStub(cluster_->endpoints()[0].channel)
                    ->GetJobStatus(&context, JobStatusRequest(), &status)
                    .ok());
    return status;
  }

  // Checks that the job used each sample of each epoch once and evaluated each epoch once.
  void ExpectDone() {
    const JobStatus status = Status();
    EXPECT_EQ(status.phase(), JobStatus::DONE);
    ASSERT_EQ(status.epoch_size(), kEpochs);
    for (const EpochAccounting& accounting : status.epoch()) {
      EXPECT_EQ(accounting.used(), kSamples);
      EXPECT_EQ(accounting.outstanding(), 0);
      EXPECT_TRUE(accounting.closed());
    }
    ASSERT_EQ(status.evaluation_size(), kEpochs);
    EXPECT_LT(status.evaluation(kEpochs - 1).loss(), status.evaluation(0).loss());
  }

  const SteadyClock clock_;
  StopLatch stop_;
  std::unique_ptr<InProcessCluster> cluster_;
};

void ExpectSame(const torch::Tensor& ours, const torch::Tensor& theirs) {
  ASSERT_TRUE(ours.defined() && theirs.defined());
  EXPECT_LE(((ours - theirs).norm() / theirs.norm()).item<double>(), 1e-5);
}

TEST_F(StagesTrainingTest, AWorkerInStagesMatchesAPlainWorker) {
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {},
           {"training.accumulate=3"},
           {"training.clip_norm=0.5", "optimizer.kind=adam", "optimizer.learning_rate=0.003"},
           {"local.steps=2", "local.inner.learning_rate=0.05"}}) {
    SCOPED_TRACE(overrides.empty() ? "plain" : overrides[0]);
    Restart();
    const torch::Tensor plain = Train(Job(overrides), {1});
    Restart();
    ExpectSame(Train(Job(overrides), {3}), plain);
    ExpectDone();
  }
}

TEST_F(StagesTrainingTest, StagedAndPlainWorkersTrainOneJob) {
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {"workers=2", "consistency.mode=SYNC"},
           {"workers=2", "consistency.staleness_bound=1", "consistency.prefetch=true"}}) {
    SCOPED_TRACE(overrides[1]);
    Restart();
    Train(Job(overrides), {3, 1});
    ExpectDone();
    uint64_t samples = 0;
    const JobStatus status = Status();
    for (const SlotAccounting& slot : status.slot()) {
      EXPECT_GT(slot.figures().samples(), 0u) << "slot " << slot.slot();
      samples += slot.figures().samples();
    }
    EXPECT_EQ(samples, static_cast<uint64_t>(kEpochs * kSamples));
  }
}

TEST_F(StagesTrainingTest, RefusesAWrongDeviceCountBeforeJoining) {
  const absl::Status refused =
      RunWorker(Task(NewNet(), CrossEntropy(), RandomSamples()), Options(Job(), 2));
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2 devices for a module of 3 stages"));
  EXPECT_EQ(Status().slot_size(), 0);
}

// Throws in the 20th pass.
struct Trap : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (is_training() && ++passes == 20) throw std::runtime_error("a trap");
    return x;
  }
  int passes = 0;
};

TEST_F(StagesTrainingTest, AStageThatThrowsEndsTheWorker) {
  const Stages net({torch::nn::Linear(32, 10), std::make_shared<Trap>(), torch::nn::Tanh()});
  const absl::Status failed =
      RunWorker(Task(net, CrossEntropy(), RandomSamples()), Options(Job(), 3));
  EXPECT_EQ(failed, absl::InternalError("stage 1 of a training step failed: a trap"));
  const JobStatus status = Status();
  ASSERT_EQ(status.slot_size(), 1);
  EXPECT_EQ(status.slot(0).state(), SlotAccounting::LEFT);
  EXPECT_EQ(status.epoch(0).outstanding(), 0) << "other workers receive its data";
}

TEST_F(StagesTrainingTest, AStoppedWorkerWithAModelInStagesLeavesTheJob) {
  WorkerOptions options = Options(Job({"training.epochs=1000"}), 3);
  options.progress_interval = absl::ZeroDuration();
  options.print = [this](const std::string&) { stop_.Stop("the user had enough"); };
  const absl::Status stopped =
      RunWorker(Task(NewNet(), CrossEntropy(), RandomSamples()), std::move(options));
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  EXPECT_EQ(Status().slot(0).state(), SlotAccounting::LEFT);
}

}  // namespace torchps::stages_training_test
