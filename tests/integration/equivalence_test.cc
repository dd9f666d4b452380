// Compares training through parameter servers with the same training without servers. Results may
// differ only by rounding. A single slot matches torch::optim. Several equal slots match one
// process with the combined batches. A worker on a GPU matches a loop on that GPU.

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "google/protobuf/text_format.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "tests/integration/torch_optimizer.h"
#include "tests/testing/gpu.h"
#include "tests/testing/manual_clock.h"
#include "torchps/client/parameter_client.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/sample_order.h"
#include "torchps/common/stop_latch.h"
#include "torchps/data/dataset.h"
#include "torchps/job/job_spec.h"
#include "torchps/job/optimizer_fields.h"
#include "torchps/job/schedule.h"
#include "torchps/program/local_run.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/models/vision_models.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/slot/run_worker.h"
#include "torchps/worker/task.h"

namespace torchps {
namespace {

constexpr uint64_t kSeed = 11;
constexpr int kEpochs = 15;
constexpr int kStepsPerEpoch = 20;
constexpr int kSteps = kEpochs * kStepsPerEpoch;
constexpr int64_t kFeatures = 32;
constexpr int64_t kClasses = 10;
constexpr double kTolerance = 1e-5;

// Hidden layers of 48 and 40 units give 3,954 parameters. Blocks of 1 KiB divide them into sixteen
// blocks, and most blocks cross tensor borders.
struct Mlp : torch::nn::Module {
  Mlp() {
    first = register_module("first", torch::nn::Linear(kFeatures, 48));
    second = register_module("second", torch::nn::Linear(48, 40));
    last = register_module("last", torch::nn::Linear(40, kClasses));
  }
  torch::Tensor forward(torch::Tensor x) {
    return last->forward(torch::tanh(second->forward(torch::tanh(first->forward(x)))));
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, last{nullptr};
};

// A network with convolutions and batch norm. The inputs are those of the Mlp, reshaped to images.
struct SmallConvNet : torch::nn::Module {
  static constexpr int64_t kChannels = 2, kSide = 4;
  static_assert(kChannels * kSide * kSide == kFeatures, "an image is a sample");

  SmallConvNet()
      : net(register_module("net", std::make_shared<ConvNet>(kChannels, kSide, kSide, kClasses))) {}
  torch::Tensor forward(torch::Tensor x) {
    return net->forward(x.view({-1, kChannels, kSide, kSide}));
  }
  std::shared_ptr<ConvNet> net;
};

// Returns a module with the same parameters in each call: seeds torch's generator, from which the
// initialization draws.
template <typename Net>
std::shared_ptr<Net> NewModule() {
  torch::manual_seed(kSeed);
  return std::make_shared<Net>();
}
std::shared_ptr<Mlp> NewMlp() { return NewModule<Mlp>(); }

torch::Tensor FlatParameters(const torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  return torch::nn::utils::parameters_to_vector(module.parameters()).clone().cpu();
}

// Random inputs with classes from a random linear map.
class RandomSamples final : public Dataset {
 public:
  explicit RandomSamples(int64_t samples) {
    torch::manual_seed(kSeed + 1);
    inputs_ = torch::randn({samples, kFeatures});
    targets_ = torch::matmul(inputs_, torch::randn({kFeatures, kClasses})).argmax(1);
  }

  int64_t size() const override { return inputs_.size(0); }
  DataShape shape() const override {
    DataShape shape;
    shape.features = kFeatures;
    shape.classes = kClasses;
    return shape;
  }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const torch::Tensor rows =
        torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()), torch::kInt64);
    return Batch{inputs_.index_select(0, rows), targets_.index_select(0, rows)};
  }

 private:
  torch::Tensor inputs_;
  torch::Tensor targets_;
};

// Selects the update rule (torchps/job/consistency_fields.h).
enum class Rule { kWholeBatch, kEachPush, kSync };

const char* GetName(Rule rule) {
  switch (rule) {
    case Rule::kWholeBatch:
      return "ASYNC, whole batches";
    case Rule::kEachPush:
      return "ASYNC, each push";
    case Rule::kSync:
      return "SYNC";
  }
  return "";
}

// Returns a job of kEpochs * kStepsPerEpoch steps with `batch_size` samples for each worker.
JobSpec MakeJob(const OptimizerSpec& optimizer, Rule rule, int workers, int batch_size) {
  JobSpec job;
  job.set_seed(kSeed);
  job.set_workers(workers);
  job.mutable_training()->set_epochs(kEpochs);
  job.mutable_training()->set_batch_size(batch_size);
  job.mutable_training()->set_evaluate(false);
  job.mutable_training()->set_balance(TrainingSpec::EQUAL);
  job.mutable_training()->set_global_batch(false);
  *job.mutable_optimizer() = optimizer;
  ConsistencySpec* const consistency = job.mutable_consistency();
  consistency->set_mode(rule == Rule::kSync ? ConsistencySpec::SYNC : ConsistencySpec::ASYNC);
  if (rule == Rule::kWholeBatch) consistency->set_apply(ConsistencySpec::WHOLE_BATCH);
  // Each step computes on the result of the previous step, as in torch::optim.
  job.mutable_consistency()->set_prefetch(false);
  job.mutable_wire()->set_block_bytes(1024);
  absl::StatusOr<JobSpec> normalised = NormalizeJobSpec(std::move(job));
  EXPECT_TRUE(normalised.ok()) << normalised.status();
  return *normalised;
}

// Trains `module` on its device without parameter servers: the first `steps` steps of the job, each
// of `batch` samples in the job's order. `before_step` receives the step number from 0 and may
// change the optimizer.
template <typename Net>
torch::Tensor TrainAlone(
    Net& module, torch::optim::Optimizer& optimizer, const Dataset& data, int64_t batch,
    const std::function<void(int64_t step)>& before_step = [](int64_t) {}, int64_t steps = kSteps,
    const Objective& objective = CrossEntropy()) {
  const torch::Device device = module.parameters().front().device();
  int64_t step = 0;
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    const std::vector<int64_t> order = EpochOrder(kSeed, epoch, data.size());
    for (int64_t begin = 0; begin < data.size() && step < steps; begin += batch) {
      const Batch samples = *data.Get(absl::MakeConstSpan(order).subspan(begin, batch));
      optimizer.zero_grad();
      const torch::Tensor output = module.forward(samples.input.to(device));
      objective.loss({&module, {output}, {samples.input, samples.target.to(device)}}).backward();
      before_step(step++);
      optimizer.step();
    }
  }
  EXPECT_EQ(step, steps);
  return FlatParameters(module);
}

// Returns the trained parameters on the servers.
template <typename Net>
torch::Tensor ReadServers(const InProcessCluster& cluster, const JobSpec& job, const Clock* clock,
                          StopLatch* stop) {
  const std::shared_ptr<Net> module = NewModule<Net>();
  const absl::StatusOr<std::unique_ptr<FlatModel>> model =
      FlatModel::Create(*module, torch::kCPU,
                        [&](const std::string& name) { return GetGroup(job.optimizer(), name); });
  EXPECT_TRUE(model.ok()) << model.status();
  ParameterClient::Options options;
  options.servers = cluster.endpoints();
  options.layout = (*model)->layout();
  options.block_map = *BlockMap::Create(options.layout, job.wire().block_bytes(),
                                        static_cast<int>(options.servers.size()));
  options.job = job;
  options.clock = clock;
  options.stop = stop;
  const absl::StatusOr<std::unique_ptr<ParameterClient>> client =
      ParameterClient::Create(std::move(options));
  EXPECT_TRUE(client.ok()) << client.status();
  const absl::StatusOr<PullResult> pulled =
      (*client)->Pull(/*clock=*/0, /*read_only=*/true, (*model)->values());
  EXPECT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_TRUE((*model)->ToDevice().ok());
  return FlatParameters(*module);
}

// Returns the coordinator's accounting of each slot.
std::vector<SlotAccounting> GetSlots(const InProcessCluster& cluster) {
  JobStatus status;
  grpc::ClientContext context;
  EXPECT_TRUE(Coordinator::NewStub(cluster.endpoints()[0].channel)
                  ->GetJobStatus(&context, JobStatusRequest(), &status)
                  .ok());
  return {status.slot().begin(), status.slot().end()};
}

// Runs the job on servers and workers in this process. One worker computes `slow` times as long.
template <typename Net = Mlp>
torch::Tensor TrainOnServers(const JobSpec& job, std::shared_ptr<const Dataset> data, int servers,
                             torch::Device device = torch::kCPU, double slow = 1,
                             std::vector<SlotAccounting>* slots = nullptr,
                             const Objective& objective = CrossEntropy()) {
  const SteadyClock clock;
  // The servers' clock does not advance, so a busy machine never triggers an early update.
  const ManualClock servers_clock;
  absl::StatusOr<std::unique_ptr<InProcessCluster>> cluster =
      InProcessCluster::Start(servers, &servers_clock);
  EXPECT_TRUE(cluster.ok()) << cluster.status();

  DataSource source;
  if (job.training().evaluate()) source.test = data;
  source.train = std::move(data);
  StopLatch stop;
  // Makes the tasks before the first thread starts, because all threads share torch's generator,
  // and a worker that joins seeds it.
  std::vector<Task> tasks;
  for (int worker = 0; worker < job.workers(); ++worker) {
    tasks.emplace_back(NewModule<Net>(), objective, source);
  }
  std::vector<absl::Status> outcomes(tasks.size());
  std::vector<std::thread> workers;
  for (size_t worker = 0; worker < tasks.size(); ++worker) {
    const bool is_last = worker + 1 == tasks.size();
    workers.emplace_back([&, is_last, &task = tasks[worker], &outcome = outcomes[worker]] {
      at::set_num_threads(1);  // a thread team for each worker would compete for the cores
      WorkerOptions options;
      options.job = job;
      options.servers = (*cluster)->endpoints();
      options.device = device;
      if (is_last) options.handicap.slow = slow;
      options.clock = &clock;
      options.stop = &stop;
      outcome = RunWorker(task, std::move(options));
      if (!outcome.ok()) stop.Stop("another worker failed");
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (const absl::Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
  if (stop.stopped()) return torch::Tensor();
  if (slots != nullptr) *slots = GetSlots(**cluster);
  return ReadServers<Net>(**cluster, job, &clock, &stop);
}

// Prints the difference, which docs/results.md quotes, and checks it.
template <typename Net = Mlp>
void ExpectEquivalent(const std::string& what, const torch::Tensor& ours,
                      const torch::Tensor& theirs, int64_t steps = kSteps,
                      double tolerance = kTolerance) {
  ASSERT_TRUE(ours.defined());
  const double difference = RelativeDifference(ours, theirs);
  const double moved = RelativeDifference(theirs, FlatParameters(*NewModule<Net>()));
  std::cout << what << ": relative parameter difference " << difference << " after " << steps
            << " steps (seed " << kSeed << "), which moved the parameters by " << moved
            << std::endl;
  EXPECT_LE(difference, tolerance);
  EXPECT_GT(moved, 1e-4 * static_cast<double>(steps))
      << "training moved the parameters too little for a meaningful comparison";
}

class AsyncEquivalenceTest : public ::testing::TestWithParam<OptimizerCase> {};

TEST_P(AsyncEquivalenceTest, OneWorkerMatchesTorchOnAnyServerCount) {
  constexpr int kBatch = 25;
  // The last batch of each epoch contains 9 samples.
  const auto data = std::make_shared<RandomSamples>((kStepsPerEpoch - 1) * kBatch + 9);
  const std::shared_ptr<Mlp> module = NewMlp();
  const std::unique_ptr<torch::optim::Optimizer> optimizer =
      TorchOptimizer(GetParam().spec, module->parameters());
  const torch::Tensor alone = TrainAlone(*module, *optimizer, *data, kBatch);

  const auto train = [&](Rule rule, int servers) {
    const JobSpec job = MakeJob(GetParam().spec, rule, /*workers=*/1, kBatch);
    torch::Tensor trained = TrainOnServers(job, data, servers);
    // Adam divides by the gradient's size. Where gradient and weight decay almost cancel, this
    // enlarges rounding differences, which depend on the CPU: up to 3e-5 after 300 steps.
    const bool has_small_sums = GetParam().spec.has_adam() && GetParam().spec.weight_decay() > 0;
    ExpectEquivalent(
        absl::StrCat(GetName(rule), ", 1 worker, servers: ", servers, ", ", GetParam().label),
        trained, alone, kSteps, has_small_sums ? 1e-4 : kTolerance);
    return trained;
  };
  train(Rule::kEachPush, /*servers=*/1);
  const torch::Tensor on_one = train(Rule::kWholeBatch, /*servers=*/1);
  const torch::Tensor on_three = train(Rule::kWholeBatch, /*servers=*/3);
  ASSERT_TRUE(on_one.defined() && on_three.defined());
  EXPECT_TRUE(torch::equal(on_one, on_three)) << "the placement of a block changed its bits";
}

INSTANTIATE_TEST_SUITE_P(EveryOptimizer, AsyncEquivalenceTest,
                         ::testing::ValuesIn(OptimizerCasesOfJobs()),
                         [](const ::testing::TestParamInfo<OptimizerCase>& info) {
                           return info.param.label;
                         });

OptimizerSpec Parse(const std::string& text) {
  OptimizerSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

TEST(EquivalenceTest, GroupsAndScheduleMatchTorchParameterGroups) {
  constexpr int kBatch = 25;
  const OptimizerSpec spec = Parse(R"pb(
    adamw { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }
    learning_rate: 0.01
    weight_decay: 0.1
    schedule { shape: COSINE warmup_steps: 10 total_steps: 100 final_fraction: 0.1 }
    group { pattern: "*.bias" learning_rate_factor: 2 weight_decay: 0 })pb");
  const auto data = std::make_shared<RandomSamples>(kStepsPerEpoch * kBatch);

  const std::shared_ptr<Mlp> module = NewMlp();
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> biases;
  for (const auto& parameter : module->named_parameters()) {
    (GetGroup(spec, parameter.key()) == 0 ? biases : weights).push_back(parameter.value());
  }
  ASSERT_EQ(biases.size(), 3u);
  const std::unique_ptr<torch::optim::Optimizer> optimizer = TorchOptimizer(spec, weights);
  torch::optim::OptimizerParamGroup bias_group(biases,
                                               optimizer->param_groups()[0].options().clone());
  static_cast<torch::optim::AdamWOptions&>(bias_group.options()).weight_decay(0);
  optimizer->add_param_group(bias_group);
  const Schedule schedule = *Schedule::Create(spec.schedule());
  const torch::Tensor alone = TrainAlone(*module, *optimizer, *data, kBatch, [&](int64_t step) {
    const double rate = spec.learning_rate() * schedule.Factor(step, /*progress=*/0);
    optimizer->param_groups()[0].options().set_lr(rate);
    optimizer->param_groups()[1].options().set_lr(2 * rate);
  });

  const JobSpec job = MakeJob(spec, Rule::kEachPush, /*workers=*/1, kBatch);
  ExpectEquivalent("ASYNC, 1 worker, 3 servers, AdamW with groups and schedule",
                   TrainOnServers(job, data, /*servers=*/3), alone);
}

// Expects that momentum at `at` equals torch's momentum if no gradient is late.
void ExpectMomentumIsTorchs(SgdSpec::MomentumAt at, bool nesterov) {
  constexpr int kBatch = 25;
  OptimizerSpec spec = Parse(R"pb(
    sgd { momentum: 0.9 }
    learning_rate: 0.05
    weight_decay: 0.01
    group { pattern: "*.bias" learning_rate_factor: 2 weight_decay: 0 })pb");
  spec.mutable_sgd()->set_nesterov(nesterov);
  const auto data = std::make_shared<RandomSamples>(kStepsPerEpoch * kBatch);
  const std::shared_ptr<Mlp> module = NewMlp();
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> biases;
  for (const auto& parameter : module->named_parameters()) {
    (GetGroup(spec, parameter.key()) == 0 ? biases : weights).push_back(parameter.value());
  }
  const std::unique_ptr<torch::optim::Optimizer> optimizer = TorchOptimizer(spec, weights);
  torch::optim::OptimizerParamGroup bias_group(biases,
                                               optimizer->param_groups()[0].options().clone());
  static_cast<torch::optim::SGDOptions&>(bias_group.options()).weight_decay(0);
  bias_group.options().set_lr(2 * spec.learning_rate());
  optimizer->add_param_group(bias_group);
  const torch::Tensor alone = TrainAlone(*module, *optimizer, *data, kBatch);

  spec.mutable_sgd()->set_momentum_at(at);
  JobSpec job = MakeJob(spec, Rule::kEachPush, /*workers=*/1, kBatch);
  for (const bool shared : {true, false}) {
    job.mutable_wire()->set_shared_memory(shared);
    ExpectEquivalent(
        absl::StrCat("ASYNC, 1 worker, 3 servers, momentum ", SgdSpec::MomentumAt_Name(at),
                     shared ? ", shared memory" : ", network"),
        TrainOnServers(job, data, /*servers=*/3), alone, kSteps, 1e-6);
  }
}

TEST(EquivalenceTest, WorkerMomentumMatchesTorchNesterov) {
  ExpectMomentumIsTorchs(SgdSpec::WORKER, /*nesterov=*/true);
}

TEST(EquivalenceTest, ClippingMatchesTorchOnTheWholeGradient) {
  constexpr int kBatch = 25;
  const OptimizerSpec spec = Parse("sgd { momentum: 0.9 } learning_rate: 0.1");
  const auto data = std::make_shared<RandomSamples>(kStepsPerEpoch * kBatch);
  const std::shared_ptr<Mlp> module = NewMlp();
  const std::unique_ptr<torch::optim::Optimizer> optimizer =
      TorchOptimizer(spec, module->parameters());
  // This norm lies between those of the first and the last gradients, so clipping affects only some
  // steps.
  constexpr double kNorm = 0.8;
  int clipped = 0;
  const torch::Tensor alone = TrainAlone(*module, *optimizer, *data, kBatch, [&](int64_t) {
    const double norm = torch::nn::utils::clip_grad_norm_(module->parameters(), kNorm);
    if (norm > kNorm) ++clipped;
  });
  EXPECT_GT(clipped, kSteps / 10);
  EXPECT_LT(clipped, kSteps * 9 / 10);

  JobSpec job = MakeJob(spec, Rule::kEachPush, /*workers=*/1, kBatch);
  job.mutable_training()->set_clip_norm(kNorm);
  ExpectEquivalent(absl::StrCat("ASYNC, 1 worker, 3 servers, ", clipped, " steps clipped"),
                   TrainOnServers(job, data, /*servers=*/3), alone);
}

TEST(EquivalenceTest, AccumulatedPassesMatchOneLargerBatch) {
  constexpr int kBatch = 16;
  constexpr int kPasses = 3;
  // An epoch ends with a push of two passes, of 16 and of 4 samples.
  constexpr int kSamples = 500;
  constexpr int kPushes = kEpochs * (kSamples / (kBatch * kPasses) + 1);
  const OptimizerSpec spec = Parse("sgd { momentum: 0.9 } learning_rate: 0.1");
  const auto data = std::make_shared<RandomSamples>(kSamples);
  const std::shared_ptr<Mlp> module = NewMlp();
  const std::unique_ptr<torch::optim::Optimizer> optimizer =
      TorchOptimizer(spec, module->parameters());
  const torch::Tensor alone = TrainAlone(
      *module, *optimizer, *data, kBatch * kPasses, [](int64_t) {}, kPushes);

  JobSpec job = MakeJob(spec, Rule::kEachPush, /*workers=*/1, kBatch);
  job.mutable_training()->set_accumulate(kPasses);
  job.mutable_training()->set_lease_batches(2 * kPasses);
  ExpectEquivalent("ASYNC, 1 worker, 3 servers, 3 passes a push",
                   TrainOnServers(job, data, /*servers=*/3), alone, kPushes);
}

// Compares a worker on a device with a torch loop on the same device.
class DeviceEquivalenceTest : public DeviceTestBase {
 protected:
  void SetUp() override {
    DeviceTestBase::SetUp();
    // By default, convolutions on a GPU round their inputs and add in a varying order.
    at::globalContext().setAllowTF32CuDNN(false);
    at::globalContext().setDeterministicCuDNN(true);
  }

  template <typename Net>
  void ExpectTheSameAfter(int64_t steps, const std::string& what) {
    constexpr int kBatch = 25;
    const OptimizerSpec spec = Parse("sgd { momentum: 0.9 } learning_rate: 0.1");
    const auto data = std::make_shared<RandomSamples>(kStepsPerEpoch * kBatch);
    const std::shared_ptr<Net> module = NewModule<Net>();
    module->to(device());
    const std::unique_ptr<torch::optim::Optimizer> optimizer =
        TorchOptimizer(spec, module->parameters());
    const torch::Tensor alone = TrainAlone(
        *module, *optimizer, *data, kBatch, [](int64_t) {}, steps);

    JobSpec job = MakeJob(spec, Rule::kEachPush, /*workers=*/1, kBatch);
    job.mutable_training()->set_max_pushes(steps);
    const torch::Tensor ours = TrainOnServers<Net>(job, data, /*servers=*/2, device());
    ExpectEquivalent<Net>(absl::StrCat(what, " on ", device().str()), ours, alone, steps);
  }
};

TEST_P(DeviceEquivalenceTest, OneStepMatchesALoopOnTheDevice) {
  ExpectTheSameAfter<Mlp>(1, "MLP");
  ExpectTheSameAfter<SmallConvNet>(1, "ConvNet");
}

TEST_P(DeviceEquivalenceTest, HundredStepsMatchALoopOnTheDevice) {
  ExpectTheSameAfter<Mlp>(100, "MLP");
  ExpectTheSameAfter<SmallConvNet>(100, "ConvNet");
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceEquivalenceTest, EachDevice(), DeviceName);

TEST(EquivalenceTest, FourWorkersMatchOneProcessWithFourfoldBatch) {
  constexpr int kWorkers = 4;
  constexpr int kBatch = 25;
  const auto data = std::make_shared<RandomSamples>(kStepsPerEpoch * kWorkers * kBatch);
  for (const std::string text :
       {"sgd {} learning_rate: 0.1", "sgd { momentum: 0.9 } learning_rate: 0.05"}) {
    const OptimizerSpec spec = Parse(text);
    const std::shared_ptr<Mlp> module = NewMlp();
    const std::unique_ptr<torch::optim::Optimizer> optimizer =
        TorchOptimizer(spec, module->parameters());
    const torch::Tensor alone = TrainAlone(*module, *optimizer, *data, kWorkers * kBatch);
    for (const Rule rule : {Rule::kSync, Rule::kWholeBatch}) {
      const JobSpec job = MakeJob(spec, rule, kWorkers, kBatch);
      for (const int servers : {1, 3}) {
        ExpectEquivalent(absl::StrCat(GetName(rule), ", 4 workers, servers: ", servers, ", ", text),
                         TrainOnServers(job, data, servers), alone);
      }
    }
  }
}

// During the job, the slow worker's batches shrink and the other workers' batches grow. How fast
// they change depends on the machine. The trained model does not.
TEST(EquivalenceTest, WorkersWithBatchesBySpeedMatchOneProcess) {
  constexpr int kWorkers = 3;
  constexpr int kBatch = 32;
  const auto data = std::make_shared<RandomSamples>(kStepsPerEpoch * kWorkers * kBatch);
  const OptimizerSpec spec = Parse("sgd { momentum: 0.9 } learning_rate: 0.05");
  const std::shared_ptr<Mlp> module = NewMlp();
  const std::unique_ptr<torch::optim::Optimizer> optimizer =
      TorchOptimizer(spec, module->parameters());
  const torch::Tensor alone = TrainAlone(*module, *optimizer, *data, kWorkers * kBatch);
  for (const Rule rule : {Rule::kSync, Rule::kWholeBatch}) {
    JobSpec job = MakeJob(spec, rule, kWorkers, kBatch);
    job.mutable_training()->set_balance(TrainingSpec::SPEED);
    job = *NormalizeJobSpec(job);
    std::vector<SlotAccounting> slots;
    ExpectEquivalent(absl::StrCat(GetName(rule), ", 3 workers, one of them slow, batches by speed"),
                     TrainOnServers(job, data, /*servers=*/2, torch::kCPU, /*slow=*/40, &slots),
                     alone);
    uint64_t fewest = kSteps * kBatch, samples = 0;
    for (const SlotAccounting& slot : slots) {
      EXPECT_EQ(slot.figures().pushes(), kSteps) << "each slot has a part of each update";
      fewest = std::min(fewest, slot.figures().samples());
      samples += slot.figures().samples();
    }
    EXPECT_EQ(samples, kSteps * kWorkers * kBatch);
    EXPECT_LT(fewest, kSteps * kBatch * 3 / 4) << "the slow worker's batches stayed large";
  }
}

// Weighs classes differently, as users do for rare classes.
Objective WeightedCrossEntropy() {
  return Objective([](const torch::Tensor& output, const torch::Tensor& target) {
    const torch::Tensor weight = torch::linspace(0.2, 3, kClasses);
    namespace F = torch::nn::functional;
    const auto options = F::CrossEntropyFuncOptions().weight(weight).reduction(torch::kSum);
    return WeightedLoss{F::cross_entropy(output, target, options),
                        weight.index_select(0, target).sum().item<double>()};
  });
}

// An epoch consists of 19 batches of 50 samples and one batch of 20.
TEST(EquivalenceTest, WeightedLossAndShortBatchMatchOneProcess) {
  constexpr int kBatch = 50;
  const auto data = std::make_shared<RandomSamples>((kStepsPerEpoch - 1) * kBatch + 20);
  const OptimizerSpec spec = Parse("sgd { momentum: 0.9 } learning_rate: 0.05");
  for (const Objective& objective : {CrossEntropy(), WeightedCrossEntropy()}) {
    const std::shared_ptr<Mlp> module = NewMlp();
    const std::unique_ptr<torch::optim::Optimizer> optimizer =
        TorchOptimizer(spec, module->parameters());
    const torch::Tensor alone = TrainAlone(
        *module, *optimizer, *data, kBatch, [](int64_t) {}, kSteps, objective);
    for (const auto& [rule, workers] : {std::pair(Rule::kEachPush, 1), std::pair(Rule::kSync, 3),
                                        std::pair(Rule::kWholeBatch, 3)}) {
      JobSpec job = MakeJob(spec, rule, workers, kBatch);
      // With EACH_PUSH and a global batch, the server scales a push by samples / batch_size. torch
      // does not scale the short last batch.
      job.mutable_training()->set_global_batch(rule != Rule::kEachPush);
      job = *NormalizeJobSpec(job);
      ExpectEquivalent(absl::StrCat(GetName(rule), ", workers: ", workers,
                                    objective.weighted_loss == nullptr ? "" : ", a weighted loss"),
                       TrainOnServers(job, data, /*servers=*/2, torch::kCPU, /*slow=*/1,
                                      /*slots=*/nullptr, objective),
                       alone);
    }
  }
}

// An evaluation follows each epoch. The slot that evaluates returns while other slots are in the
// middle of a step.
TEST(EquivalenceTest, AShortLastStepMatchesOneProcess) {
  constexpr int kBatch = 50;
  const OptimizerSpec spec = Parse("sgd { momentum: 0.9 } learning_rate: 0.05");
  for (const int last : {2, 4, 7}) {
    const auto data = std::make_shared<RandomSamples>((kStepsPerEpoch - 1) * kBatch + last);
    const std::shared_ptr<Mlp> module = NewMlp();
    const std::unique_ptr<torch::optim::Optimizer> optimizer =
        TorchOptimizer(spec, module->parameters());
    const torch::Tensor alone = TrainAlone(*module, *optimizer, *data, kBatch);
    for (const int workers : {1, 3}) {
      JobSpec job = MakeJob(spec, Rule::kWholeBatch, workers, kBatch);
      job.mutable_training()->set_global_batch(true);
      job.mutable_training()->set_evaluate(true);
      job = *NormalizeJobSpec(job);
      ExpectEquivalent(absl::StrCat("workers: ", workers, ", a last step of ", last),
                       TrainOnServers(job, data, /*servers=*/2), alone);
    }
  }
}

// The jobs differ only in the number of workers and in the balance.
TEST(EquivalenceTest, AGlobalBatchMatchesOneProcessOnAnyWorkerCount) {
  constexpr int kBatch = 50;
  const auto data = std::make_shared<RandomSamples>(kStepsPerEpoch * kBatch);
  const OptimizerSpec spec = Parse(
      "adam { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 } "
      "learning_rate: 0.002");
  const std::shared_ptr<Mlp> module = NewMlp();
  const std::unique_ptr<torch::optim::Optimizer> optimizer =
      TorchOptimizer(spec, module->parameters());
  const torch::Tensor alone = TrainAlone(*module, *optimizer, *data, kBatch);
  for (const int workers : {1, 3, 4}) {
    for (const TrainingSpec::Balance balance : {TrainingSpec::EQUAL, TrainingSpec::SPEED}) {
      JobSpec job = MakeJob(spec, Rule::kWholeBatch, workers, kBatch);
      job.mutable_training()->set_global_batch(true);
      job.mutable_training()->set_balance(balance);
      job = *NormalizeJobSpec(job);
      ExpectEquivalent(absl::StrCat("ASYNC, a global batch, workers: ", workers, ", ",
                                    TrainingSpec::Balance_Name(balance)),
                       TrainOnServers(job, data, /*servers=*/2, torch::kCPU, /*slow=*/4), alone);
    }
  }
}

// The job file leaves consistency and the kind of batch at their defaults, and has a schedule. Only
// the number of workers differs.
TEST(EquivalenceTest, ADefaultJobLearnsTheSameWithThreeWorkersAsWithOne) {
  constexpr int kBatch = 50;
  const auto data = std::make_shared<RandomSamples>(kStepsPerEpoch * kBatch);
  JobSpec text;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("seed: ", kSeed, " training { epochs: ", kEpochs, " batch_size: ", kBatch,
                   " evaluate: false } optimizer { sgd { momentum: 0.9 } learning_rate: 0.05 ",
                   "schedule { shape: COSINE warmup_steps: 10 } } wire { block_bytes: 1024 }"),
      &text));
  const auto learn = [&](int workers) {
    JobSpec job = text;
    job.set_workers(workers);
    return TrainOnServers(*NormalizeJobSpec(job), data, /*servers=*/2, torch::kCPU, /*slow=*/4);
  };
  ExpectEquivalent("nothing said, 3 workers", learn(3), learn(1));
}

}  // namespace
}  // namespace torchps
