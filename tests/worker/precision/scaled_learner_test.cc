// Tests the loss scale of training.precision FLOAT16. The CPU does not cast to 16 bits, so only the
// scale has an effect. It must not change any bit of a gradient.

#include <ATen/Parallel.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/worker/kernels/host_launcher.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/worker/cuda/device_scan.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/kernels/gradient_kernels.h"
#include "torchps/worker/learner.h"
#include "torchps/worker/precision/precision.h"
#include "torchps/worker/replicas/replica_group.h"
#include "torchps/worker/replicas/replica_tasks.h"
#include "torchps/worker/stages/stages.h"
#include "torchps/worker/task.h"
#include "torchps/worker/training_observer.h"

namespace torchps {
namespace {

struct Net : torch::nn::Cloneable<Net> {
  Net() { reset(); }
  void reset() override { layer = register_module("layer", torch::nn::Linear(3, 2)); }
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor output = layer->forward(input);
    seen = output.scalar_type();
    return output;
  }
  torch::nn::Linear layer{nullptr};
  torch::ScalarType seen = torch::kFloat64;
};

Stages TwoStages() { return Stages({torch::nn::Linear(3, 3), torch::nn::Linear(3, 2)}); }

// Counts the reported blocks, and records the scales.
class Listener final : public Learner::Observer, public TrainingObserver {
 public:
  absl::Status BeforeGradient(absl::Duration) override { return absl::OkStatus(); }
  void OnBlock(BlockId) override { ++told; }
  void OnScale(const LossScaler& scaler) override { scales.push_back(scaler.scale()); }
  int told = 0;
  std::vector<double> scales;
};

DataSource Points() {
  torch::manual_seed(8);
  DataSource data;
  data.train = std::make_shared<TensorDataset>(torch::randn({12, 3}), torch::randint(2, {12}));
  return data;
}

template <typename Module>
Task MakeTask(const Module& module, double loss_factor = 1) {
  const Objective objective([loss_factor](const torch::Tensor& output, const torch::Tensor&) {
    return output.tanh().sum() * loss_factor;
  });
  return Task(module, objective, Points());
}

// kApart: the model's tensors are apart from the host's vectors. kKernels: as kApart, with the
// GPU's kernels, which run here on the host.
enum class Where { kHost, kApart, kKernels, kReplicas, kStages };

// Computes the gradients of a worker, without servers.
class Worker {
 public:
  Worker(Task task, const std::string& training, Where where, bool local_steps = false)
      : local_steps_(local_steps), task_(std::move(task)) {
    at::set_num_threads(1);
    const Placement host(torch::kCPU);
    const bool apart = where == Where::kApart || where == Where::kKernels;
    const Placement placement = apart                     ? host.ApartFromHost()
                                : where == Where::kStages ? Placement({torch::kCPU, torch::kCPU})
                                                          : host;
    model_ = *FlatModel::Create(task_.module(), placement, [](const std::string&) { return -1; });
    if (where == Where::kKernels) {
      model_->UseScan(std::make_unique<DeviceScan>(
          std::make_unique<GradientKernels>(MakeHostLauncher()), torch::kCPU,
          model_->device_gradients().numel(), [] { return nullptr; }));
    }
    map_ = *BlockMap::Create(model_->layout(), /*block_bytes=*/64, /*servers=*/1);
    Learner::Options options;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(training, &options.training));
    options.block_map = &map_;
    options.clock = &clock_;
    options.local_steps = local_steps;
    options.observer = &listener_;
    if (where != Where::kReplicas) {
      learner_ = std::make_unique<Learner>(task_, model_.get(), options);
      return;
    }
    ReplicaGroup::Options group;
    group.learning = options;
    const DeviceList further(2, torch::kCPU);
    further_ = *MakeReplicaTasks(task_, nullptr, /*seed=*/1, torch::kCPU, further);
    group_ = *ReplicaGroup::Create(task_, model_.get(), further_, further, std::move(group));
  }

  Learner::Gradient Compute() {
    std::vector<int64_t> samples(12);
    std::iota(samples.begin(), samples.end(), 0);
    StepWork step;
    step.samples = samples;
    step.epoch = 1;
    step.batch_size = 6;  // two passes
    absl::StatusOr<Learner::Gradient> gradient =
        group_ != nullptr ? group_->Compute(step, &listener_) : learner_->Compute(step, &listener_);
    EXPECT_TRUE(gradient.ok()) << gradient.status();
    return gradient.ok() ? *std::move(gradient) : Learner::Gradient();
  }

  std::vector<float> gradients() const {
    // Local steps leave the gradients on the device.
    if (local_steps_) {
      EXPECT_TRUE(model_->ToHost().ok());
    }
    const absl::Span<float> all = model_->gradients();
    return {all.begin(), all.end()};
  }
  const std::vector<double>& scales() const { return listener_.scales; }
  int told() const { return listener_.told; }

 private:
  const SteadyClock clock_;
  const bool local_steps_;
  const Task task_;
  std::unique_ptr<FlatModel> model_;
  BlockMap map_;
  Listener listener_;
  std::vector<Task> further_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<ReplicaGroup> group_;
};

Task TaskFor(Where where, double loss_factor = 1) {
  torch::manual_seed(5);
  return where == Where::kStages ? MakeTask(TwoStages(), loss_factor)
                                 : MakeTask(std::make_shared<Net>(), loss_factor);
}

class ScaledLearnerTest : public ::testing::TestWithParam<Where> {};

TEST_P(ScaledLearnerTest, UnscaledGradientsEqualPlainOnesToTheBit) {
  for (const std::string rest : {"", "clip_norm: 0.01"}) {
    Worker plain(TaskFor(GetParam()), rest, GetParam());
    Worker scaled(TaskFor(GetParam()), "precision: FLOAT16 " + rest, GetParam());
    const Learner::Gradient expected = plain.Compute();
    const Learner::Gradient gradient = scaled.Compute();
    EXPECT_EQ(gradient.finite, Finite::kYes);
    EXPECT_EQ(gradient.loss_sum, expected.loss_sum) << "losses are reported unscaled";
    EXPECT_EQ(scaled.gradients(), plain.gradients()) << rest;
    EXPECT_EQ(scaled.told(), 0) << "a block is final only after unscaling";
  }
}

TEST_P(ScaledLearnerTest, OverflowsHalveTheScaleUntilGradientsFit) {
  // The sum of twelve samples' gradients of about 1e34 exceeds float32 at loss scale 2^16, but not
  // at 2^10.
  Worker plain(TaskFor(GetParam(), 1e34), "", GetParam());
  Worker scaled(TaskFor(GetParam(), 1e34), "precision: FLOAT16", GetParam());
  plain.Compute();
  std::vector<double> expected;
  int overflows = 0;
  while (true) {
    const Learner::Gradient gradient = scaled.Compute();
    if (gradient.finite == Finite::kYes) {
      EXPECT_EQ(gradient.overflows, 0);
      break;
    }
    ASSERT_EQ(gradient.finite, Finite::kOverflow);
    EXPECT_EQ(gradient.overflows, 1);
    expected.push_back(65536 / static_cast<double>(2 << overflows));
    ASSERT_LT(++overflows, 7);
  }
  EXPECT_GE(overflows, 1);
  EXPECT_EQ(scaled.scales(), expected) << "each scale is reported once";
  EXPECT_EQ(scaled.gradients(), plain.gradients());
}

TEST_P(ScaledLearnerTest, ReportsANonFiniteGradientAtScaleOne) {
  Worker worker(TaskFor(GetParam(), std::numeric_limits<double>::infinity()), "precision: FLOAT16",
                GetParam());
  for (int halvings = 0; halvings < 16; ++halvings) {
    EXPECT_EQ(worker.Compute().finite, Finite::kOverflow);
  }
  const Learner::Gradient gradient = worker.Compute();
  EXPECT_EQ(gradient.finite, Finite::kNo);
  EXPECT_EQ(gradient.overflows, 0);
}

std::string PlaceName(const ::testing::TestParamInfo<Where>& info) {
  const char* const names[] = {"Host", "Apart", "Kernels", "Replicas", "Stages"};
  return names[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Addresses, ScaledLearnerTest,
                         ::testing::Values(Where::kHost, Where::kApart, Where::kKernels,
                                           Where::kReplicas, Where::kStages),
                         PlaceName);

TEST(ScaledLocalStepTest, GradientsOfLocalStepsAreUnscaledInPlace) {
  for (const Where where : {Where::kHost, Where::kApart, Where::kKernels}) {
    Worker plain(TaskFor(where), "clip_norm: 0.01", where, /*local_steps=*/true);
    Worker scaled(TaskFor(where), "clip_norm: 0.01 precision: FLOAT16", where,
                  /*local_steps=*/true);
    EXPECT_EQ(plain.Compute().finite, Finite::kYes);
    EXPECT_EQ(scaled.Compute().finite, Finite::kYes);
    EXPECT_EQ(scaled.gradients(), plain.gradients());
    Worker large(TaskFor(where, 1e34), "precision: FLOAT16", where, /*local_steps=*/true);
    EXPECT_EQ(large.Compute().finite, Finite::kOverflow);
  }
}

// The norm of the scaled gradient is 2^16 times too large, so clipping by it would shrink the
// gradient too much.
TEST(ScaledKernelsTest, KernelClippingMatchesTheHostsBits) {
  for (const bool local_steps : {false, true}) {
    const std::string training = "clip_norm: 0.01 precision: FLOAT16";
    Worker host(TaskFor(Where::kHost), training, Where::kHost, local_steps);
    Worker kernels(TaskFor(Where::kKernels), training, Where::kKernels, local_steps);
    EXPECT_EQ(host.Compute().finite, Finite::kYes);
    EXPECT_EQ(kernels.Compute().finite, Finite::kYes);
    EXPECT_EQ(kernels.gradients(), host.gradients());
  }
}

TEST(LearnerPrecisionTest, ForwardUsesTheJobsPrecisionAndGradientsFloat32) {
  for (const bool bfloat16 : {false, true}) {
    torch::manual_seed(5);
    const auto net = std::make_shared<Net>();
    Worker worker(MakeTask(net), bfloat16 ? "precision: BFLOAT16" : "", Where::kHost);
    // The first step reports no block early. It only records how the graph adds gradients.
    worker.Compute();
    const Learner::Gradient gradient = worker.Compute();
    EXPECT_EQ(net->seen, bfloat16 ? torch::kBFloat16 : torch::kFloat32);
    EXPECT_EQ(net->layer->weight.scalar_type(), torch::kFloat32);
    EXPECT_EQ(gradient.finite, Finite::kUnknown) << "blocks are sent one by one";
    EXPECT_GT(worker.told(), 0);
  }
}

}  // namespace
}  // namespace torchps
