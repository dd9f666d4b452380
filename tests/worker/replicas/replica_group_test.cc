// Compares several replicas on the CPU with one device and the whole batch.

#include "torchps/worker/replicas/replica_group.h"

#include <ATen/Parallel.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/worker/models/vision_models.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/replicas/replica_tasks.h"
#include "torchps/worker/replicas/sync_batch_norm.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSide = 8;
constexpr int64_t kClasses = 3;
constexpr int64_t kSamples = 240;
constexpr uint64_t kSeed = 11;

// Random images. Samples from `poison` on are NaN, and reading samples from `missing` on fails.
class Images final : public Dataset {
 public:
  Images() {
    torch::manual_seed(kSeed);
    inputs_ = torch::randn({kSamples, 1, kSide, kSide});
    targets_ = torch::randint(kClasses, {kSamples}, torch::kInt64);
  }
  int64_t size() const override { return kSamples; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    if (indices.back() >= missing) return absl::DataLossError("a sample is damaged");
    const torch::Tensor rows =
        torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()), torch::kInt64);
    Batch batch{inputs_.index_select(0, rows), targets_.index_select(0, rows)};
    if (indices.back() >= poison) batch.input.fill_(std::nan(""));
    return batch;
  }
  int64_t poison = kSamples;
  int64_t missing = kSamples;

 private:
  torch::Tensor inputs_, targets_;
};

class Listener final : public Learner::Observer {
 public:
  absl::Status BeforeGradient(absl::Duration) override {
    ++heard;
    return answer;
  }
  void OnBlock(BlockId) override { ADD_FAILURE() << "a sum's block was reported early"; }
  int heard = 0;
  absl::Status answer;
};

using MakeModule = std::function<Task(const DataSource& data)>;

Task ConvNetTask(const DataSource& data) {
  return Task(std::make_shared<ConvNet>(1, kSide, kSide, kClasses), CrossEntropy(), data);
}

// Network without ReLU and max pooling, which amplify rounding errors. If an activation is near
// zero, or two are nearly equal, the last digit decides the gradient.
struct SmoothNet : torch::nn::Module {
  SmoothNet() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 6, 3)));
    norm = register_module("norm", SyncBatchNorm2d(6));
    hidden = register_module("hidden", torch::nn::Linear(6 * 36, 10));
    norm1 = register_module("norm1", SyncBatchNorm1d(10));
    last = register_module("last", torch::nn::Linear(10, kClasses));
  }
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor image = torch::tanh(norm->forward(conv->forward(input)));
    return last->forward(torch::tanh(norm1->forward(hidden->forward(image.flatten(1)))));
  }
  torch::nn::Conv2d conv{nullptr};
  SyncBatchNorm2d norm{nullptr};
  torch::nn::Linear hidden{nullptr}, last{nullptr};
  SyncBatchNorm1d norm1{nullptr};
};

Task SmoothTask(const DataSource& data) {
  return Task(std::make_shared<SmoothNet>(), CrossEntropy(), data);
}

Task MlpTask(const DataSource& data) {
  return Task(std::make_shared<Mlp>(kSide * kSide, std::vector<int64_t>{10}, kClasses),
              CrossEntropy(), data);
}

// Trains the same module on one device with a Learner, and on several devices with a ReplicaGroup.
class ReplicaGroupTest : public ::testing::Test {
 protected:
  ReplicaGroupTest() { at::set_num_threads(1); }

  struct Side {
    explicit Side(Task made) : task(std::move(made)) {}
    Task task;
    std::unique_ptr<FlatModel> model;
    BlockMap map;
    std::unique_ptr<Learner> learner;
    std::unique_ptr<ReplicaGroup> group;
    Listener listener;
  };

  std::unique_ptr<Side> MakeSide(const MakeModule& make, Learner::Options* options) {
    DataSource data;
    data.train = images_;
    torch::manual_seed(kSeed);
    auto side = std::make_unique<Side>(make(data));
    side->model =
        *FlatModel::Create(side->task.module(), torch::kCPU, [](const std::string&) { return -1; });
    side->map = *BlockMap::Create(side->model->layout(), /*block_bytes=*/256, /*servers=*/1);
    options->training = training_;
    options->block_map = &side->map;
    options->clock = &clock_;
    options->loader_threads = loader_threads_;
    return side;
  }

  std::unique_ptr<Side> Alone(const MakeModule& make) {
    Learner::Options options;
    auto side = MakeSide(make, &options);
    side->learner = std::make_unique<Learner>(side->task, side->model.get(), options);
    return side;
  }

  absl::StatusOr<std::unique_ptr<Side>> Together(
      const MakeModule& make, size_t replicas,
      const std::function<absl::StatusOr<Task>()>& make_another) {
    ReplicaGroup::Options options;
    auto side = MakeSide(make, &options.learning);
    const DeviceList further(replicas - 1, torch::kCPU);
    absl::StatusOr<std::vector<Task>> tasks =
        MakeReplicaTasks(side->task, make_another, kSeed, torch::kCPU, further);
    if (!tasks.ok()) return tasks.status();
    auto group = ReplicaGroup::Create(side->task, side->model.get(), *tasks, further, options);
    if (!group.ok()) return group.status();
    side->group = *std::move(group);
    return side;
  }
  absl::StatusOr<std::unique_ptr<Side>> Together(const MakeModule& make, size_t replicas) {
    return Together(make, replicas, [&] { return make(DataSource()); });
  }

  absl::StatusOr<Learner::Gradient> Compute(Side& side, int64_t first, int64_t samples,
                                            int64_t batch_size) {
    std::vector<int64_t> indices(samples + 3 * batch_size);
    std::iota(indices.begin(), indices.end(), first);
    for (int64_t& index : indices) index %= kSamples;
    StepWork step;
    step.samples = absl::MakeConstSpan(indices).first(samples);
    step.upcoming = absl::MakeConstSpan(indices).subspan(samples);
    step.epoch = 1;
    step.position = first;
    step.batch_size = batch_size;
    if (side.group != nullptr) return side.group->Compute(step, &side.listener);
    Learner::Observer* const nobody = &quiet_;
    return side.learner->Compute(step, nobody);
  }

  static double Difference(absl::Span<const float> a, absl::Span<const float> b) {
    EXPECT_EQ(a.size(), b.size());
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
      norm += std::pow(static_cast<double>(b[i]), 2);
    }
    return std::sqrt(difference / std::max(norm, 1e-30));
  }

  // Runs twenty steps of SGD on one device and on `replicas` devices, each from the same values.
  // Expects that the gradients differ relatively by at most `tolerance`.
  void ExpectSame(const MakeModule& make, size_t replicas, int64_t samples, int64_t batch_size,
                  double tolerance = 1e-6) {
    SCOPED_TRACE(testing::Message() << replicas << " replicas, " << samples << " samples in passes "
                                    << "of " << batch_size);
    const auto alone = Alone(make);
    const auto made = Together(make, replicas);
    ASSERT_TRUE(made.ok()) << made.status();
    Side& together = **made;
    for (int step = 0; step < 20; ++step) {
      const int64_t first = step * samples % (kSamples - samples);
      const auto expected = Compute(*alone, first, samples, batch_size);
      const auto gradient = Compute(together, first, samples, batch_size);
      ASSERT_TRUE(expected.ok()) << expected.status();
      ASSERT_TRUE(gradient.ok()) << gradient.status();
      EXPECT_EQ(gradient->samples, samples);
      EXPECT_NEAR(gradient->loss_sum, expected->loss_sum, 1e-4 * samples);
      EXPECT_EQ(gradient->finite, expected->finite);
      EXPECT_EQ(gradient->absent, expected->absent);
      EXPECT_EQ(together.listener.heard, step + 1);
      EXPECT_LE(Difference(together.model->gradients(), alone->model->gradients()), tolerance)
          << "step " << step;
      EXPECT_LE(Difference(together.model->averaged(), alone->model->averaged()), 1e-5) << step;
      const absl::Span<float> values = alone->model->values();
      const absl::Span<const float> by = alone->model->gradients();
      for (size_t i = 0; i < by.size(); ++i) values[i] -= 0.1f * by[i];
      std::copy(values.begin(), values.end(), together.model->values().begin());
    }
  }

  class Quiet final : public Learner::Observer {
   public:
    absl::Status BeforeGradient(absl::Duration) override { return absl::OkStatus(); }
    void OnBlock(BlockId) override {}
  };

  const SteadyClock clock_;
  const std::shared_ptr<Images> images_ = std::make_shared<Images>();
  TrainingSpec training_;
  int loader_threads_ = 0;
  Quiet quiet_;
};

TEST_F(ReplicaGroupTest, PushesTheGradientOfTheWholeBatch) {
  ExpectSame(MlpTask, 2, 16, 16);
  ExpectSame(MlpTask, 3, 16, 16);
}

TEST_F(ReplicaGroupTest, SyncBatchNormMatchesTheWholeBatch) {
  training_.set_sync_batchnorm(true);
  ExpectSame(SmoothTask, 2, 16, 16, 3e-6);
  ExpectSame(SmoothTask, 3, 16, 16, 3e-6);
  // ConvNet amplifies rounding errors, as the comment on SmoothNet explains. So the tolerance is
  // larger, but with statistics of each device's own samples the gradients would differ by tenths.
  ExpectSame(ConvNetTask, 2, 16, 16, 1e-2);
}

TEST_F(ReplicaGroupTest, DividesEachPassAmongTheReplicas) {
  training_.set_sync_batchnorm(true);
  ExpectSame(SmoothTask, 2, 21, 8, 3e-6);  // passes of 8, 8 and 5
  ExpectSame(SmoothTask, 3, 19, 8, 3e-6);  // the last pass of 3, which one replica computes
  loader_threads_ = 2;
  ExpectSame(SmoothTask, 3, 22, 8, 3e-6);
}

TEST_F(ReplicaGroupTest, LaterReplicasAreIdleIfSamplesAreFew) {
  ExpectSame(MlpTask, 3, 5, 5);
  ExpectSame(MlpTask, 3, 2, 2);
  ExpectSame(MlpTask, 3, 1, 1);
}

TEST_F(ReplicaGroupTest, ClipsTheSumOfTheReplicasGradients) {
  training_.set_clip_norm(0.05);
  ExpectSame(MlpTask, 3, 16, 8);
}

TEST_F(ReplicaGroupTest, NonFiniteReplicasMakeTheStepNonFinite) {
  images_->poison = 12;  // the last 4 of 16, in the second replica's part
  for (const NonFinitePolicy policy : {REJECT_PUSH, STOP_JOB, SKIP_BLOCK}) {
    training_.set_nonfinite(policy);
    const auto side = Together(MlpTask, 2);
    ASSERT_TRUE(side.ok()) << side.status();
    const auto gradient = Compute(**side, 0, 16, 16);
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    // Under SKIP_BLOCK the worker checks each block before the push, so the group does not check.
    EXPECT_EQ(gradient->finite, policy == SKIP_BLOCK ? Finite::kUnknown : Finite::kNo);
    EXPECT_TRUE(std::isnan((*side)->model->gradients()[0]));
    const auto next = Compute(**side, 0, 8, 8);
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_NE(next->finite, Finite::kNo) << "the next step is not affected";
    EXPECT_TRUE(std::isfinite((*side)->model->gradients()[0]));
  }
}

TEST_F(ReplicaGroupTest, WithoutSyncAveragedBuffersAreReplicaMeans) {
  const auto side = Together(ConvNetTask, 2);
  ASSERT_TRUE(side.ok()) << side.status();
  ASSERT_TRUE(Compute(**side, 0, 10, 10).ok());
  std::vector<float> expected((*side)->model->averaged().size());
  for (const int64_t first : {0, 5}) {
    const auto part = Alone(ConvNetTask);
    ASSERT_TRUE(Compute(*part, first, 5, 5).ok());
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += part->model->averaged()[i] / 2;
  }
  EXPECT_LE(Difference((*side)->model->averaged(), expected), 1e-6);
}

// Uses the branch only for an input whose first element is above zero.
struct Branching : torch::nn::Module {
  Branching() {
    body = register_module("body", torch::nn::Linear(2, 2));
    branch = register_module("branch", torch::nn::Linear(2, 2));
    unused = register_parameter("unused", torch::ones({7}));
  }
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor hidden = body->forward(input);
    return input[0][0].item<float>() > 0 ? branch->forward(hidden) : hidden;
  }
  torch::nn::Linear body{nullptr}, branch{nullptr};
  torch::Tensor unused;
};

// Sample i is (1, 1) if `positive[i]`, else (-1, -1).
class Signs final : public Dataset {
 public:
  explicit Signs(std::vector<bool> positive) : positive_(std::move(positive)) {}
  int64_t size() const override { return static_cast<int64_t>(positive_.size()); }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const auto rows = static_cast<int64_t>(indices.size());
    Batch batch{torch::empty({rows, 2}), torch::zeros({rows}, torch::kInt64)};
    for (int64_t i = 0; i < rows; ++i) batch.input[i].fill_(positive_[indices[i]] ? 1 : -1);
    return batch;
  }

 private:
  const std::vector<bool> positive_;
};

TEST_F(ReplicaGroupTest, OnlyParametersThatNoReplicaReachedAreAbsent) {
  const auto make = [](const std::vector<bool>& positive) {
    return [positive](const DataSource&) {
      DataSource data;
      data.train = std::make_shared<Signs>(positive);
      return Task(std::make_shared<Branching>(), CrossEntropy(), data);
    };
  };
  // The layout has 7 elements of `unused`, then 6 of the body, then 6 of the branch.
  struct Case {
    std::vector<bool> positive;
    ElementRuns absent;
  };
  for (const Case& each :
       {Case{{false, false, true, true}, {{0, 7}}}, Case{{true, true, false, false}, {{0, 7}}},
        Case{{false, false, false, false}, {{0, 7}, {13, 19}}}}) {
    const auto side = Together(make(each.positive), 2);
    ASSERT_TRUE(side.ok()) << side.status();
    const auto gradient = Compute(**side, 0, 4, 4);
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    EXPECT_EQ(gradient->absent, each.absent);
  }
}

TEST_F(ReplicaGroupTest, OneReplicasErrorEndsTheWholeStep) {
  training_.set_sync_batchnorm(true);
  const auto side = Together(ConvNetTask, 3);
  ASSERT_TRUE(side.ok()) << side.status();
  ASSERT_TRUE(Compute(**side, 0, 18, 18).ok());
  images_->missing = 12;  // in the third replica's part
  const auto failed = Compute(**side, 0, 18, 18);
  EXPECT_TRUE(absl::IsDataLoss(failed.status())) << failed.status();
  EXPECT_EQ(failed.status().message(), "replica 2 on cpu: a sample is damaged");
  images_->missing = kSamples;
  EXPECT_TRUE(Compute(**side, 0, 18, 18).ok());
}

TEST_F(ReplicaGroupTest, AnObserversErrorEndsTheStepOfEachReplica) {
  training_.set_sync_batchnorm(true);
  const auto side = Together(ConvNetTask, 2);
  ASSERT_TRUE(side.ok()) << side.status();
  (*side)->listener.answer = absl::CancelledError("the gradient would come too late");
  EXPECT_EQ(Compute(**side, 0, 8, 8).status(), (*side)->listener.answer);
  (*side)->listener.answer = absl::OkStatus();
  EXPECT_TRUE(Compute(**side, 0, 8, 8).ok());
}

TEST_F(ReplicaGroupTest, AnExceptionInOneReplicaEndsTheStepWithAnError) {
  int made = 0;
  // The third replica's objective throws.
  const auto make = [&made](const DataSource& data) {
    const bool throws = ++made == 3;
    Objective objective([throws](const torch::Tensor& output, const torch::Tensor&) {
      if (throws) throw std::runtime_error("this one cannot");
      return output.mean();
    });
    return Task(std::make_shared<Mlp>(kSide * kSide, std::vector<int64_t>{}, kClasses), objective,
                data);
  };
  const auto side = Together(make, 3);
  ASSERT_TRUE(side.ok()) << side.status();
  EXPECT_EQ(Compute(**side, 0, 9, 9).status(),
            absl::InternalError("replica 2 on cpu: a training step failed: this one cannot"));
}

TEST_F(ReplicaGroupTest, RefusesABatchNormThatCannotBeSynchronized) {
  struct Own : torch::nn::Module {
    Own() { norm = register_module("norm", torch::nn::BatchNorm2d(1)); }
    torch::Tensor forward(const torch::Tensor& input) { return norm->forward(input).flatten(1); }
    torch::nn::BatchNorm2d norm{nullptr};
  };
  const auto make = [](const DataSource& data) {
    return Task(std::make_shared<Own>(), CrossEntropy(), data);
  };
  EXPECT_TRUE(Together(make, 2).ok());
  training_.set_sync_batchnorm(true);
  const absl::Status refused = Together(make, 2).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cannot synchronize 'norm'"));
}

// Users' modules may derive from torch::nn::Cloneable, like this one.
class Copyable : public torch::nn::Cloneable<Copyable> {
 public:
  Copyable() { reset(); }
  void reset() override { layer = register_module("layer", torch::nn::Linear(64, kClasses)); }
  torch::Tensor forward(const torch::Tensor& input) { return layer->forward(input.flatten(1)); }
  torch::nn::Linear layer{nullptr};
};

TEST_F(ReplicaGroupTest, WithoutAFactoryClonesTheModuleIfPossible) {
  const auto make = [](const DataSource& data) {
    return Task(std::make_shared<Copyable>(), CrossEntropy(), data);
  };
  const auto alone = Alone(make);
  ASSERT_TRUE(Compute(*alone, 0, 8, 8).ok());
  const auto side = Together(make, 2, /*make_another=*/nullptr);
  ASSERT_TRUE(side.ok()) << side.status();
  ASSERT_TRUE(Compute(**side, 0, 8, 8).ok());
  EXPECT_LE(Difference((*side)->model->gradients(), alone->model->gradients()), 1e-6);

  const absl::Status refused = Together(ConvNetTask, 2, /*make_another=*/nullptr).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("each device needs a separate module, but there is only one"));
}

TEST_F(ReplicaGroupTest, RefusesAFactoryThatMakesAnotherModule) {
  const auto another = [this] {
    DataSource data;
    data.train = images_;
    return Task(std::make_shared<Mlp>(kSide * kSide, std::vector<int64_t>{11}, kClasses),
                CrossEntropy(), data);
  };
  const absl::Status refused = Together(MlpTask, 2, another).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(refused.message(),
            "the module made for another device has a different shape for 'layers.0.weight'; "
            "expected the same module each time");
}

}  // namespace
}  // namespace torchps
