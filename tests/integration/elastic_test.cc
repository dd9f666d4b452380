// Tests workers that join and leave a running job: from one worker to sixteen and back, with a stop
// notice for each of the fifteen. The job uses each sample once and learns as well as an
// undisturbed job.

#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/data/dataset.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/worker/slot/run_worker.h"
#include "torchps/worker/slot/worker_options.h"

namespace torchps::elastic_test {

constexpr int kJoiners = 15;
constexpr int kServers = 2;
constexpr int64_t kSamples = 640;
constexpr int64_t kFeatures = 8;
constexpr int64_t kStepsOfJoiner = 3;
constexpr int64_t kJoinAt = 30;
constexpr uint64_t kSeed = 16;

// Samples of a linear map with noise.
class Rows final : public Dataset {
 public:
  Rows() {
    torch::manual_seed(kSeed);
    inputs_ = torch::randn({kSamples, kFeatures});
    targets_ =
        torch::matmul(inputs_, torch::randn({kFeatures, 1})) + 0.1 * torch::randn({kSamples, 1});
  }
  int64_t size() const override { return kSamples; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const torch::Tensor rows =
        torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()), torch::kInt64);
    return Batch{inputs_.index_select(0, rows), targets_.index_select(0, rows)};
  }

 private:
  torch::Tensor inputs_;
  torch::Tensor targets_;
};

class ElasticTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto cluster = InProcessCluster::Start(kServers, &clock_);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    data_.train = std::make_shared<Rows>();
  }

  // Returns a job of one worker, with the default consistency.
  static JobSpec Job() {
    return *NormalizeJobSpec(
        *ParseJobText("workers: 1 training { epochs: 20 batch_size: 32 evaluate: false } "
                      "optimizer { sgd { momentum: 0.9 } learning_rate: 0.01 schedule { shape: "
                      "COSINE } } wire { block_bytes: 64 }",
                      "the job"));
  }

  std::thread StartWorker(StopLatch* stop, std::function<void(int64_t step)> on_step,
                          absl::Status* outcome) {
    torch::manual_seed(kSeed);
    auto module = std::make_shared<torch::nn::LinearImpl>(kFeatures, 1);
    if (stop == &stop_) module_ = module;
    Callbacks callbacks;
    callbacks.on_step = [on_step = std::move(on_step)](const Callbacks::Step& step) {
      on_step(step.step);
    };
    const Objective objective(
        [](const Pass& pass) { return (pass.output() - pass.batch.target).square().mean(); });
    WorkerOptions options;
    options.job = Job();
    options.servers = cluster_->endpoints();
    options.clock = &clock_;
    options.stop = stop;
    return std::thread([task = Task(module, objective, data_, callbacks), options, outcome] {
      at::set_num_threads(1);
      *outcome = RunWorker(task, options);
    });
  }

  JobStatus StatusOfJob() {
    JobStatus status;
    grpc::ClientContext context;
    EXPECT_TRUE(Coordinator::NewStub(cluster_->endpoints()[0].channel)
                    ->GetJobStatus(&context, JobStatusRequest(), &status)
                    .ok());
    return status;
  }

  void ExpectEverySampleUsedOnce() {
    const JobStatus status = StatusOfJob();
    EXPECT_EQ(status.epoch_size(), 20);
    for (const EpochAccounting& epoch : status.epoch()) EXPECT_EQ(epoch.used(), uint64_t{kSamples});
    for (const ServerEndpoint& endpoint : cluster_->endpoints()) {
      ServerStatus server;
      grpc::ClientContext context;
      ASSERT_TRUE(ParameterService::NewStub(endpoint.channel)
                      ->GetServerStatus(&context, ServerStatusRequest(), &server)
                      .ok());
      EXPECT_LE(server.lag().max(), 1);
    }
  }

  torch::Tensor Learned() const {
    torch::NoGradGuard no_grad;
    return torch::nn::utils::parameters_to_vector(module_->parameters()).clone();
  }

  const SteadyClock clock_;
  StopLatch stop_;
  DataSource data_;
  std::unique_ptr<InProcessCluster> cluster_;
  // The module of the worker that stays.
  std::shared_ptr<torch::nn::LinearImpl> module_;
};

TEST_F(ElasticTest, AJobThatGrowsToSixteenWorkersAndBackUsesEachSampleOnce) {
  absl::Status outcome;
  StartWorker(
      &stop_, [](int64_t) {}, &outcome)
      .join();
  ASSERT_TRUE(outcome.ok()) << outcome;
  ExpectEverySampleUsedOnce();
  const torch::Tensor undisturbed = Learned();

  SetUp();
  std::array<StopLatch, kJoiners> stops;
  std::array<absl::Status, kJoiners> outcomes;
  absl::Notification begun;
  absl::BlockingCounter left(kJoiners);
  std::thread first = StartWorker(
      &stop_,
      [&](int64_t step) {
        if (step != kJoinAt) return;
        begun.Notify();
        // The job continues without this worker until the other workers have participated.
        left.Wait();
      },
      &outcome);
  begun.WaitForNotification();
  std::vector<std::thread> joiners;
  for (int i = 0; i < kJoiners; ++i) {
    joiners.push_back(StartWorker(
        &stops[i],
        [&, i, steps = int64_t{0}](int64_t) mutable {
          if (++steps != kStepsOfJoiner) return;
          stops[i].Stop("this machine is needed elsewhere");
          left.DecrementCount();
        },
        &outcomes[i]));
  }
  for (std::thread& joiner : joiners) joiner.join();
  first.join();
  ASSERT_TRUE(outcome.ok()) << outcome;
  for (const absl::Status& stopped : outcomes) EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  ExpectEverySampleUsedOnce();

  const double difference = ((Learned() - undisturbed).norm() / undisturbed.norm()).item<double>();
  std::cout << "relative difference to the undisturbed job " << difference << " (seed " << kSeed
            << ")" << std::endl;
  EXPECT_LT(difference, 0.02);
}

}  // namespace torchps::elastic_test
