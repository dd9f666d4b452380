// Compares local steps with the published algorithm (DiLoCo, Douillard et al. 2023). Workers run as
// threads on servers in this process. Then reference loops repeat the same steps on the same
// samples.

#include <ATen/Parallel.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "tests/integration/torch_optimizer.h"
#include "torch/nn/modules/linear.h"
#include "torch/utils.h"
#include "torchps/client/parameter_client.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/data/dataset.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/slot/run_worker.h"
#include "torchps/worker/task.h"

namespace torchps::local_steps_test {

constexpr uint64_t kSeed = 5;
constexpr int64_t kFeatures = 16;
constexpr int64_t kClasses = 4;
constexpr int kServers = 2;
constexpr int kWorkers = 3;
constexpr int kSteps = 8;  // local steps for each push, H in the paper
constexpr int kBatch = 4;
constexpr int kRounds = 12;
constexpr double kOuterRate = 0.7;
constexpr double kOuterMomentum = 0.9;

// 508 parameters. Blocks of 128 bytes divide them into sixteen blocks, eight on each server.
struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(kFeatures, 24));
    last = register_module("last", torch::nn::Linear(24, kClasses));
  }
  torch::Tensor forward(torch::Tensor x) { return last->forward(torch::tanh(first->forward(x))); }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

std::shared_ptr<Net> NewNet() {
  torch::manual_seed(kSeed);
  return std::make_shared<Net>();
}

// Random points with classes from a random linear map. Records the samples asked for.
class Points final : public Dataset {
 public:
  explicit Points(int64_t samples, int64_t poison = -1) {
    torch::manual_seed(kSeed + 1);
    inputs_ = torch::randn({samples, kFeatures});
    targets_ = torch::matmul(inputs_, torch::randn({kFeatures, kClasses})).argmax(1);
    if (poison >= 0) inputs_[poison].fill_(std::nan(""));
    fingerprint_ =
        FingerprintOfSamples(TensorDataset(inputs_, targets_), Fingerprinted::kAllNumbers);
  }
  int64_t size() const override { return inputs_.size(0); }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    asked_.emplace_back(indices.begin(), indices.end());
    const torch::Tensor rows = torch::tensor(asked_.back(), torch::kInt64);
    return Batch{inputs_.index_select(0, rows), targets_.index_select(0, rows)};
  }
  uint32_t Fingerprint() const override { return fingerprint_; }

  // The batches in the order in which the worker asked for them. Not thread-safe.
  const std::vector<std::vector<int64_t>>& asked() const { return asked_; }

 private:
  torch::Tensor inputs_;
  torch::Tensor targets_;
  uint32_t fingerprint_ = 0;
  mutable std::vector<std::vector<int64_t>> asked_;
};

JobSpec MakeJob(const std::string& text, int epochs = 1, bool shared_memory = true) {
  JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("seed: ", kSeed, " wire { block_bytes: 128 } training { batch_size: ", kBatch,
                   " balance: EQUAL global_batch: false evaluate: false } ", text),
      &job))
      << text;
  job.mutable_training()->set_epochs(epochs);
  job.mutable_wire()->set_shared_memory(shared_memory);
  const absl::StatusOr<JobSpec> normalised = NormalizeJobSpec(job);
  EXPECT_TRUE(normalised.ok()) << normalised.status();
  return *normalised;
}

// DiLoCo's outer optimizer.
constexpr char kOuter[] = "optimizer { sgd { momentum: 0.9 nesterov: true } learning_rate: 0.7 } ";

// The result of a job.
struct Trained {
  torch::Tensor values;  // the servers' values
  JobStatus status;
  std::vector<std::shared_ptr<Points>> data;  // for each worker
  std::vector<absl::Status> outcomes;
};

torch::Tensor ReadServers(const InProcessCluster& cluster, const JobSpec& job, const Clock* clock,
                          StopLatch* stop) {
  const std::shared_ptr<Net> net = NewNet();
  const auto model = FlatModel::Create(*net, torch::kCPU, [](const std::string&) { return -1; });
  EXPECT_TRUE(model.ok()) << model.status();
  ParameterClient::Options options;
  options.servers = cluster.endpoints();
  options.layout = (*model)->layout();
  options.block_map = *BlockMap::Create(options.layout, job.wire().block_bytes(), kServers);
  options.job = job;
  options.clock = clock;
  options.stop = stop;
  const auto client = ParameterClient::Create(std::move(options));
  EXPECT_TRUE(client.ok()) << client.status();
  const auto pulled = (*client)->Pull(/*clock=*/0, /*read_only=*/true, (*model)->values());
  EXPECT_TRUE(pulled.ok()) << pulled.status();
  return (*model)->device_values().clone();
}

Trained Train(const JobSpec& job, int64_t samples, int64_t poison = -1) {
  const SteadyClock clock;
  const auto cluster = InProcessCluster::Start(kServers, &clock);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  StopLatch stop;
  Trained trained;
  trained.outcomes.resize(job.workers());
  // Makes the tasks before the first thread starts, because all threads share torch's generator,
  // and a worker that joins seeds it.
  std::vector<Task> tasks;
  for (int worker = 0; worker < job.workers(); ++worker) {
    trained.data.push_back(std::make_shared<Points>(samples, poison));
    DataSource source;
    source.train = trained.data.back();
    tasks.emplace_back(NewNet(), CrossEntropy(), source);
  }
  std::vector<std::thread> workers;
  for (size_t worker = 0; worker < tasks.size(); ++worker) {
    workers.emplace_back([&, &task = tasks[worker], &outcome = trained.outcomes[worker]] {
      at::set_num_threads(1);
      WorkerOptions options;
      options.job = job;
      options.servers = (*cluster)->endpoints();
      options.clock = &clock;
      options.stop = &stop;
      outcome = RunWorker(task, std::move(options));
      if (!outcome.ok()) stop.Stop("another worker failed");
    });
  }
  for (std::thread& worker : workers) worker.join();
  grpc::ClientContext context;
  EXPECT_TRUE(Coordinator::NewStub((*cluster)->endpoints()[0].channel)
                  ->GetJobStatus(&context, JobStatusRequest(), &trained.status)
                  .ok());
  if (!stop.stopped()) trained.values = ReadServers(**cluster, job, &clock, &stop);
  return trained;
}

void ExpectAllWell(const Trained& trained) {
  for (const absl::Status& outcome : trained.outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
}

// The reference: one net that computes with the values of any worker.
class Reference {
 public:
  Reference() : net_(NewNet()), values_(Flat(/*gradients=*/false)) {}

  const torch::Tensor& values() const { return values_; }

  torch::Tensor Gradient(const torch::Tensor& values, const Points& data,
                         const std::vector<int64_t>& samples) {
    {
      const torch::NoGradGuard no_grad;
      int64_t begin = 0;
      for (torch::Tensor& parameter : net_->parameters()) {
        parameter.copy_(values.narrow(0, begin, parameter.numel()).view(parameter.sizes()));
        begin += parameter.numel();
      }
    }
    net_->zero_grad();
    const Batch batch = *data.Get(samples);
    CrossEntropy().loss({net_.get(), {net_->forward(batch.input)}, batch}).backward();
    return Flat(/*gradients=*/true);
  }

 private:
  torch::Tensor Flat(bool gradients) const {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> parts;
    for (const torch::Tensor& parameter : net_->parameters()) {
      parts.push_back((gradients ? parameter.grad() : parameter).reshape({-1}).clone());
    }
    return torch::cat(parts);
  }

  const std::shared_ptr<Net> net_;
  const torch::Tensor values_;
};

// Adam with torch's defaults.
struct Adam {
  double rate = 0;
  int step = 0;
  torch::Tensor mean, square;

  void Step(const torch::Tensor& gradient, torch::Tensor& values) {
    if (step++ == 0) {
      mean = torch::zeros_like(values);
      square = torch::zeros_like(values);
    }
    mean = 0.9 * mean + 0.1 * gradient;
    square = 0.999 * square + 0.001 * gradient * gradient;
    const torch::Tensor corrected = (square / (1 - std::pow(0.999, step))).sqrt() + 1e-8;
    values = values - rate / (1 - std::pow(0.9, step)) * mean / corrected;
  }
};

// Returns the parameters that DiLoCo's servers should hold, given the batches each worker trained
// on.
torch::Tensor TrainByTheBook(const std::vector<std::shared_ptr<Points>>& data, double inner_rate) {
  Reference reference;
  torch::Tensor values = reference.values().clone();
  torch::Tensor momentum = torch::zeros_like(values);
  std::vector<Adam> inner(data.size(), Adam{inner_rate, 0, {}, {}});
  // Copies the recorded batches first, because Gradient() below also asks for batches, which adds
  // records.
  std::vector<std::vector<std::vector<int64_t>>> batches;
  for (const auto& each : data) {
    batches.push_back(each->asked());
    batches.back().erase(batches.back().begin());  // read before the job began
  }
  const size_t rounds = batches[0].size() / kSteps;
  for (size_t round = 0; round < rounds; ++round) {
    torch::Tensor sum = torch::zeros_like(values);
    for (size_t worker = 0; worker < data.size(); ++worker) {
      torch::Tensor own = values.clone();
      for (int step = 0; step < kSteps; ++step) {
        inner[worker].Step(
            reference.Gradient(own, *data[worker], batches[worker][round * kSteps + step]), own);
      }
      sum += values - own;
    }
    const torch::Tensor mean = sum / static_cast<double>(data.size());
    momentum = kOuterMomentum * momentum + mean;
    values = values - kOuterRate * (mean + kOuterMomentum * momentum);
  }
  return values;
}

constexpr int64_t kSamples = int64_t{kRounds} * kSteps * kBatch * kWorkers;

void ExpectByTheBook(const Trained& trained, double inner_rate) {
  ExpectAllWell(trained);
  ASSERT_TRUE(trained.values.defined());
  const torch::Tensor expected = TrainByTheBook(trained.data, inner_rate);
  const double difference = RelativeDifference(trained.values, expected);
  const double moved = RelativeDifference(expected, Reference().values());
  std::cout << "relative difference " << difference << ", moved " << moved << " (seed " << kSeed
            << ")" << std::endl;
  EXPECT_LE(difference, 1e-5);
  EXPECT_GT(moved, 0.1) << "training moved the parameters too little for a meaningful comparison";
}

TEST(LocalStepsTest, SynchronousLocalStepsMatchDiLoCo) {
  for (const bool shared_memory : {true, false}) {
    const JobSpec job =
        MakeJob(absl::StrCat("workers: 3 consistency { mode: SYNC } ", kOuter,
                             "local { steps: 8 inner { adam {} learning_rate: 0.003 } }"),
                /*epochs=*/1, shared_memory);
    const Trained trained = Train(job, kSamples);
    ExpectByTheBook(trained, 0.003);
    for (const SlotAccounting& slot : trained.status.slot())
      EXPECT_EQ(slot.figures().pushes(), kRounds);
  }
}

TEST(LocalStepsTest, OneLocalSgdStepMatchesSynchronousSgd) {
  const std::string sync =
      "workers: 3 consistency { mode: SYNC } optimizer { learning_rate: 0.2 } ";
  const Trained plain = Train(MakeJob(sync), kSamples);
  const Trained local =
      Train(MakeJob(sync + "local { steps: 1 inner { sgd {} learning_rate: 1 } }"), kSamples);
  ExpectAllWell(plain);
  ExpectAllWell(local);
  ASSERT_TRUE(plain.values.defined() && local.values.defined());
  EXPECT_LE(RelativeDifference(local.values, plain.values), 1e-5);
  EXPECT_GT(RelativeDifference(plain.values, Reference().values()), 0.1);
}

TEST(LocalStepsTest, AsynchronousLocalStepsLowerTheTrainingLoss) {
  const JobSpec job =
      MakeJob(absl::StrCat("workers: 3 consistency { mode: ASYNC staleness_bound: -1 } ", kOuter,
                           "local { steps: 8 inner { adam {} learning_rate: 0.003 } }"),
              /*epochs=*/4);
  EXPECT_EQ(job.optimizer().sgd().momentum_at(), SgdSpec::DELAYED);
  const Trained trained = Train(job, kSamples);
  ExpectAllWell(trained);
  ASSERT_TRUE(trained.values.defined());
  uint64_t pushes = 0;
  for (const SlotAccounting& slot : trained.status.slot()) pushes += slot.figures().pushes();
  EXPECT_EQ(pushes, 4u * kRounds * kWorkers);
  // The last epoch's loss is well below the first epoch's loss.
  ASSERT_EQ(trained.status.epoch_size(), 4);
  EXPECT_LT(trained.status.epoch(3).train_loss(), 0.7 * trained.status.epoch(0).train_loss());
}

TEST(LocalStepsTest, AWorkerSkipsALocalStepWithANonFiniteGradient) {
  const JobSpec job = MakeJob(
      "consistency { mode: SYNC } optimizer { learning_rate: 1 } "
      "local { steps: 8 inner { sgd {} learning_rate: 0.1 } }");
  const Trained trained = Train(job, /*samples=*/4 * kSteps * kBatch, /*poison=*/7);
  ExpectAllWell(trained);
  ASSERT_TRUE(trained.values.defined());
  EXPECT_TRUE(trained.values.isfinite().all().item<bool>());
  ASSERT_EQ(trained.status.slot_size(), 1);
  EXPECT_EQ(trained.status.slot(0).figures().pushes(), 4u);
  EXPECT_EQ(trained.status.slot(0).figures().skipped_nonfinite(), 1u);
}

}  // namespace torchps::local_steps_test
