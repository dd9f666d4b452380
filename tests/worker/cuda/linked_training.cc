#include "tests/worker/cuda/linked_training.h"

#include <limits>
#include <utility>

#include "gtest/gtest.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/linear.h"
#include "torch/utils.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/stop_latch.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/worker/slot/run_worker.h"

namespace torchps {
namespace {

class Points final : public Dataset {
 public:
  int64_t size() const override { return 96; }
  DataShape shape() const override { return DataShape(); }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const auto rows = static_cast<int64_t>(indices.size());
    Batch batch{torch::empty({rows, 2}), torch::empty({rows}, torch::kInt64)};
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t index = indices[row];
      batch.input[row][0] = (index % 2 == 1 ? 1.0 : -1.0) + 0.01 * static_cast<double>(index % 7);
      batch.input[row][1] = 0.1 * static_cast<double>(index % 5);
      batch.target[row] = index % 2;
    }
    return batch;
  }
};

// Module with averaged elements, and with layers that do not share blocks.
struct Net : torch::nn::Module {
  Net()
      : norm(register_module("norm", torch::nn::BatchNorm1d(2))),
        first(register_module("first", torch::nn::Linear(2, 32))),
        second(register_module("second", torch::nn::Linear(32, 2))) {}
  torch::Tensor forward(const torch::Tensor& input) {
    if (before_forward != nullptr) before_forward();
    ++forwards;
    torch::Tensor hidden = first->forward(norm->forward(input));
    // If `is_odd`, every other pass skips a layer. In one pass, the gradient is not finite in the
    // last layer's block, and only there.
    if (is_odd && forwards % 2 == 0) hidden = extra->forward(hidden);
    torch::Tensor output = second->forward(torch::relu(hidden));
    if (is_odd && forwards == 9) {
      output.register_hook([this](const torch::Tensor&) { spoil = true; });
    }
    return output;
  }
  // REQUIRES: no worker has laid out the module yet.
  void MakeOdd() {
    is_odd = true;
    extra = register_module("extra", torch::nn::Linear(32, 32));
    second->bias.register_hook([this](const torch::Tensor& gradient) {
      return std::exchange(spoil, false) ? gradient * std::numeric_limits<float>::infinity()
                                         : gradient;
    });
  }
  std::function<void()> before_forward;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear first;
  torch::nn::Linear second;
  torch::nn::Linear extra = nullptr;
  bool is_odd = false;
  bool spoil = false;
  int64_t forwards = 0;
};

constexpr char kJob[] = R"(
  workers: 1
  training { epochs: 2 batch_size: 8 balance: EQUAL global_batch: false }
  optimizer { sgd { momentum: 0.9 } learning_rate: 0.1 }
  consistency { mode: ASYNC prefetch: false }
  wire { block_bytes: 64 shared_memory: false }
)";

}  // namespace

JobSpec JobWith(const std::string& more, const std::string& further) {
  JobSpec job = *ParseJobText(kJob, "the test's job");
  job.MergeFrom(*ParseJobText(more, "what differs"));
  job.MergeFrom(*ParseJobText(further, "what differs, too"));
  return *NormalizeJobSpec(job);
}

Learnt Train(const JobSpec& job, const FakeDevice& device, const Variant& variant) {
  at::set_num_threads(1);
  SteadyClock clock;
  StopLatch stop;
  const auto cluster = *InProcessCluster::Start(/*servers=*/2, &clock);
  torch::manual_seed(1);
  Learnt learnt;
  Callbacks callbacks;
  callbacks.on_step = [&](const Callbacks::Step& step) { learnt.losses.push_back(step.loss); };
  callbacks.on_end = [&](torch::nn::Module& module) {
    for (const torch::Tensor& value : module.parameters()) {
      learnt.values.push_back(value.detach().clone());
    }
    for (const torch::Tensor& value : module.buffers()) learnt.values.push_back(value.clone());
  };
  DataSource data;
  data.train = std::make_shared<Points>();
  const auto net = std::make_shared<Net>();
  if (variant.is_odd) net->MakeOdd();
  int64_t before_forward = 0;
  net->before_forward = [&] { before_forward = device.downs(); };
  net->norm->weight.register_hook(
      [&](const torch::Tensor&) { learnt.early_downs += device.downs() - before_forward; });
  const Task task(net, CrossEntropy(), data, callbacks);
  WorkerOptions options;
  options.job = job;
  options.servers = cluster->endpoints();
  options.device_factory = &device;
  options.loader_threads = variant.loader_threads;
  Mutex mutex;
  options.log = [&](const std::string& line) {
    MutexLock lock(&mutex);
    learnt.said.push_back(line);
  };
  options.clock = &clock;
  options.stop = &stop;
  learnt.status = RunWorker(task, options);
  learnt.downs = device.downs();
  return learnt;
}

Learnt Train(const JobSpec& job, const Variant& variant) {
  return Train(job, FakeDevice(), variant);
}

void ExpectTheSame(const Learnt& learnt, const Learnt& plain) {
  ASSERT_TRUE(plain.status.ok()) << plain.status;
  ASSERT_TRUE(learnt.status.ok()) << learnt.status;
  EXPECT_EQ(learnt.losses, plain.losses);
  ASSERT_EQ(learnt.values.size(), plain.values.size());
  for (size_t i = 0; i < plain.values.size(); ++i) {
    EXPECT_TRUE(learnt.values[i].equal(plain.values[i])) << "tensor " << i;
  }
}

}  // namespace torchps
