// Tests a worker of two devices together with a plain worker, on servers in this process.

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/data/dataset.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/worker/models/vision_models.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/replicas/replica_tasks.h"
#include "torchps/worker/slot/run_worker.h"

namespace torchps::replicas_test {

constexpr int64_t kSamples = 96;
constexpr int64_t kSide = 8;
constexpr uint64_t kSeed = 7;

// Noise with a bright upper or lower half, in two classes.
class Halves final : public Dataset {
 public:
  explicit Halves(int64_t samples) {
    torch::manual_seed(kSeed);
    inputs_ = torch::randn({samples, 1, kSide, kSide}) * 0.2;
    targets_ = torch::arange(samples, torch::kInt64).remainder(2);
    for (int64_t i = 0; i < samples; ++i) {
      inputs_[i][0].narrow(0, i % 2 * kSide / 2, kSide / 2).add_(1);
    }
  }
  int64_t size() const override { return inputs_.size(0); }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const torch::Tensor rows =
        torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()), torch::kInt64);
    return Batch{inputs_.index_select(0, rows), targets_.index_select(0, rows)};
  }

 private:
  torch::Tensor inputs_, targets_;
};

Task NewTask() {
  DataSource data;
  data.train = std::make_shared<Halves>(kSamples);
  data.test = std::make_shared<Halves>(40);
  torch::manual_seed(kSeed);
  return Task(std::make_shared<ConvNet>(1, kSide, kSide, 2), CrossEntropy(), data);
}

class ReplicasTest : public ::testing::Test {
 protected:
  ReplicasTest() : cluster_(*InProcessCluster::Start(/*servers=*/2, &clock_)) {
    at::set_num_threads(1);
  }

  // Runs one worker thread for each entry of `devices`, with that many devices, and returns the
  // job's accounting.
  JobStatus Run(const JobSpec& job, const std::vector<size_t>& devices) {
    struct Worker {
      Task task;
      std::vector<Task> further;
      DeviceList devices;
    };
    // Makes the tasks before the threads start, because all threads share torch's generator.
    std::vector<Worker> workers;
    for (const size_t count : devices) {
      Worker worker{NewTask(), {}, DeviceList(count - 1, torch::kCPU)};
      worker.further = *MakeReplicaTasks(
          worker.task, [] { return NewTask(); }, kSeed, torch::kCPU, worker.devices);
      workers.push_back(std::move(worker));
    }
    std::vector<std::thread> threads;
    for (const Worker& worker : workers) {
      threads.emplace_back([&] {
        at::set_num_threads(1);
        WorkerOptions options;
        options.job = job;
        options.further_devices = worker.devices;
        options.servers = cluster_->endpoints();
        options.clock = &clock_;
        options.stop = &stop_;
        const absl::Status run =
            worker.devices.empty()
                ? RunWorker(worker.task, options)
                : RunWorker(worker.task, options, ComputeOnDevices(worker.further, worker.devices));
        EXPECT_TRUE(run.ok()) << run;
      });
    }
    for (std::thread& thread : threads) thread.join();
    grpc::ClientContext context;
    JobStatus status;
    const auto stub = Coordinator::NewStub(cluster_->endpoints()[0].channel);
    EXPECT_TRUE(stub->GetJobStatus(&context, JobStatusRequest(), &status).ok());
    return status;
  }

  // Checks that the job used each sample of each epoch once and that the model learned.
  static void ExpectDone(const JobStatus& status, int epochs) {
    EXPECT_EQ(status.phase(), JobStatus::DONE);
    ASSERT_EQ(status.epoch_size(), epochs);
    for (const EpochAccounting& accounting : status.epoch()) {
      EXPECT_EQ(accounting.used(), kSamples);
      EXPECT_EQ(accounting.outstanding(), 0);
      EXPECT_TRUE(accounting.closed());
    }
    uint64_t samples = 0;
    for (const SlotAccounting& slot : status.slot()) samples += slot.figures().samples();
    EXPECT_EQ(samples, static_cast<uint64_t>(epochs * kSamples));
    ASSERT_EQ(status.evaluation_size(), epochs);
    EXPECT_GT(status.evaluation(epochs - 1).metric(0).value(), 0.9);
  }

  const SteadyClock clock_;
  StopLatch stop_;
  const std::unique_ptr<InProcessCluster> cluster_;
};

JobSpec Job(const std::string& more, double rate = 0.1) {
  JobSpec job = *ParseJobText(
      "workers: 2 training { epochs: 4 batch_size: 8 balance: EQUAL global_batch: false "
      "sync_batchnorm: true } optimizer { sgd {} } wire { block_bytes: 256 } " +
          more,
      "the test's job");
  job.mutable_optimizer()->set_learning_rate(rate);
  return *NormalizeJobSpec(job);
}

TEST_F(ReplicasTest, ATwoDeviceWorkerAndAPlainWorkerTrainOneJob) {
  const JobStatus status = Run(Job("consistency { mode: ASYNC }"), {2, 1});
  ExpectDone(status, 4);
  ASSERT_EQ(status.slot_size(), 2);
  int members = 0;
  for (const SlotAccounting& slot : status.slot()) {
    members += slot.member_size();
    if (slot.member_size() == 0) continue;
    EXPECT_EQ(slot.device(), "cpu,cpu");
    EXPECT_EQ(slot.member(1).device(), "cpu");
    EXPECT_EQ(slot.member(1).stage(), -1);
    EXPECT_EQ(slot.member(1).parameters(), slot.member(0).parameters());
    EXPECT_GT(slot.member(0).model_bytes(), slot.member(1).model_bytes());
  }
  EXPECT_EQ(members, 2);
}

TEST_F(ReplicasTest, WorkersOfTwoAndThreeDevicesTrainInRounds) {
  ExpectDone(Run(Job("consistency { mode: SYNC }"), {2, 3}), 4);
}

TEST_F(ReplicasTest, ATwoDeviceWorkerAndAPlainWorkerTakeLocalSteps) {
  const JobSpec job =
      Job("consistency { mode: SYNC } local { steps: 2 inner { sgd {} learning_rate: 0.1 } }",
          /*rate=*/0.7);
  ExpectDone(Run(job, {2, 1}), 4);
}

}  // namespace torchps::replicas_test
