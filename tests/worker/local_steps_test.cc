#include "torchps/worker/local_steps.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "torch/nn/modules/linear.h"
#include "torch/utils.h"
#include "torchps/job/job_spec.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/stages/stages.h"
#include "torchps/worker/task.h"

namespace torchps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;

// The model has one weight for each feature, in blocks of 16 weights.
constexpr int64_t kFeatures = 64;
constexpr int64_t kSamples = 400;

struct WeightNet : torch::nn::Module {
  WeightNet() {
    weight = register_parameter("weight", torch::zeros({kFeatures}));
    unused = register_parameter("unused", torch::ones({16}));
  }
  torch::Tensor forward(torch::Tensor x) { return torch::matmul(x, weight); }
  torch::Tensor weight, unused;
};

// All inputs are 1. So if the loss is the mean output, each gradient is 1 for each weight.
class Ones final : public Dataset {
 public:
  int64_t size() const override { return kSamples; }
  DataShape shape() const override { return DataShape(); }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const auto rows = static_cast<int64_t>(indices.size());
    batches_.push_back(rows);
    return Batch{torch::ones({rows, kFeatures}), torch::zeros({rows})};
  }
  const std::vector<int64_t>& batches() const { return batches_; }

 private:
  mutable std::vector<int64_t> batches_;
};

class Listener final : public Learner::Observer {
 public:
  absl::Status BeforeGradient(absl::Duration) override {
    ++heard_;
    return absl::OkStatus();
  }
  void OnBlock(BlockId) override { ADD_FAILURE() << "a difference's block was reported early"; }
  int heard() const { return heard_; }

 private:
  int heard_ = 0;
};

// Computes the pushes of a worker, without servers.
struct Worker {
  explicit Worker(const std::string& local, const std::string& training = "batch_size: 32",
                  const Placement& placement = torch::Device(torch::kCPU))
      : net(std::make_shared<WeightNet>()), data(std::make_shared<Ones>()) {
    JobSpec spec;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("training { ", training,
                     " } optimizer { learning_rate: 1 } wire { block_bytes: 64 } local { ", local,
                     " inner { learning_rate: 0.125 } }"),
        &spec));
    job = *NormalizeJobSpec(spec);
    EXPECT_TRUE(CompleteJobSpec(&job, kSamples).ok());
    model = *FlatModel::Create(*net, placement, [](const std::string&) { return -1; });
    map = *BlockMap::Create(model->layout(), job.wire().block_bytes(), /*servers=*/1);
    const Objective objective([](const Pass& pass) { return pass.outputs[0].mean(); }, {});
    DataSource source;
    source.train = data;
    Learner::Options options;
    options.training = job.training();
    options.block_map = &map;
    options.clock = &clock;
    options.local_steps = true;
    learner = std::make_unique<Learner>(Task(net, objective, source), model.get(), options);
    const auto compute = [this](const StepWork& step, Learner::Observer* observer) {
      return learner->Compute(step, observer);
    };
    auto made = LocalSteps::Create(job, model.get(), compute, &clock);
    EXPECT_TRUE(made.ok()) << made.status();
    steps = *std::move(made);
  }

  Learner::Gradient Compute(int64_t samples) {
    std::vector<int64_t> indices(samples);
    std::iota(indices.begin(), indices.end(), 0);
    StepWork step;
    step.samples = indices;
    step.epoch = 1;
    step.batch_size = samples;
    const auto gradient = steps->Compute(step, &listener);
    EXPECT_TRUE(gradient.ok()) << gradient.status();
    return *gradient;
  }

  // Sets the values to zero, as a pull of zeros does.
  void PullZeros() {
    const absl::Span<float> values = model->values();
    std::fill(values.begin(), values.end(), 0.0f);
    const absl::Status taken = model->ToDevice();
    EXPECT_TRUE(taken.ok()) << taken;
  }

  // Returns the elements of a block that the worker would push.
  std::vector<float> GetPushed(int block) {
    const absl::Span<float> all = model->gradients();
    return {all.begin() + 16 * block, all.begin() + 16 * block + 16};
  }

  std::shared_ptr<WeightNet> net;
  std::shared_ptr<Ones> data;
  JobSpec job;
  SteadyClock clock;
  std::unique_ptr<FlatModel> model;
  BlockMap map;
  std::unique_ptr<Learner> learner;
  std::unique_ptr<LocalSteps> steps;
  Listener listener;
};

TEST(LocalStepsTest, PushesTheChangeOfItsSteps) {
  Worker worker("steps: 4");
  const Learner::Gradient gradient = worker.Compute(4 * 32);
  EXPECT_EQ(worker.listener.heard(), 1);
  EXPECT_EQ(gradient.samples, 128);
  EXPECT_THAT(worker.data->batches(), ElementsAre(32, 32, 32, 32));
  // Four steps with the rate 1/8, whose gradients are 1.
  EXPECT_THAT(worker.GetPushed(0), Each(0.5f));
  EXPECT_THAT(worker.GetPushed(3), Each(0.5f));
  EXPECT_EQ(worker.net->weight[5].item<float>(), -0.5f);
  // The loss is the mean output at each step's initial values: 0, -8, -16, -24.
  EXPECT_DOUBLE_EQ(gradient.loss_sum, 32 * -(8.0 + 16 + 24));
}

TEST(LocalStepsTest, UnreachedParametersAreAbsent) {
  Worker worker("steps: 2");
  const Learner::Gradient gradient = worker.Compute(2 * 32);
  EXPECT_THAT(gradient.absent, ElementsAre(ElementRun{64, 80}));
  EXPECT_EQ(worker.net->unused[0].item<float>(), 1.0f);
}

TEST(LocalStepsTest, AFasterWorkerTakesMoreStepsOfEqualSize) {
  Worker worker("steps: 8", "batch_size: 32 balance: SPEED global_batch: false");
  worker.Compute(8 * 43);
  EXPECT_THAT(worker.data->batches(), ElementsAre(32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 24));
}

TEST(LocalStepsTest, AStepAccumulatesItsPasses) {
  Worker worker("steps: 2", "batch_size: 16 accumulate: 3 global_batch: false");
  worker.Compute(2 * 3 * 16);
  EXPECT_THAT(worker.data->batches(), ElementsAre(16, 16, 16, 16, 16, 16));
  EXPECT_THAT(worker.GetPushed(0), Each(FloatNear(0.25f, 1e-6f)));
}

TEST(LocalStepsTest, EachPushBeginsWithThePulledValues) {
  const Placement on_host = torch::Device(torch::kCPU);
  // The second placement copies the host's values to the device as a whole.
  for (const Placement& placement : {on_host, on_host.ApartFromHost()}) {
    SCOPED_TRACE(placement.on_host() ? "on the host" : "apart from it, without a link");
    Worker worker("steps: 2", "batch_size: 32", placement);
    for (int push = 0; push < 3; ++push) {
      worker.Compute(2 * 32);
      EXPECT_THAT(worker.GetPushed(0), Each(0.25f));
      worker.PullZeros();
    }
  }
}

}  // namespace
}  // namespace torchps
