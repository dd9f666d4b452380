// Tests the types that modules see inside and outside autocast on the CPU, which uses bfloat16.

#include "torchps/worker/precision/precision.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/job/job_spec.h"
#include "torchps/worker/model_use.h"
#include "torchps/worker/models/model_registry.h"
#include "torchps/worker/stages/pipeline.h"
#include "torchps/worker/stages/stages.h"
#include "torchps/worker/task.h"

namespace torchps {
namespace {

// Records the type of the layer's computation.
struct Witness : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor output = layer->forward(input);
    seen.push_back(output.scalar_type());
    return output;
  }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 4));
  std::vector<torch::ScalarType> seen;
};

// Dataset of tensors that describes their shape to a model.
class Shaped final : public Dataset {
 public:
  Shaped(const torch::Tensor& input, const torch::Tensor& target, const DataShape& shape)
      : data_(input, target), shape_(shape) {}
  int64_t size() const override { return data_.size(); }
  DataShape shape() const override { return shape_; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    return data_.Get(indices);
  }

 private:
  const TensorDataset data_;
  const DataShape shape_;
};

class PrecisionTest : public ::testing::Test {
 protected:
  PrecisionTest() {
    at::set_num_threads(1);
    torch::manual_seed(3);
    input_ = torch::randn({6, 4});
  }

  // Returns the type that a layer computes in on this thread.
  torch::ScalarType Seen() {
    net_->forward(input_);
    return net_->seen.back();
  }

  const std::shared_ptr<Witness> net_ = std::make_shared<Witness>();
  torch::Tensor input_;
};

TEST_F(PrecisionTest, OnlyTheForwardPassUses16Bits) {
  torch::Tensor loss;
  {
    const Autocast autocast(TrainingSpec::BFLOAT16, torch::kCPU);
    loss = net_->forward(input_).sum();
    EXPECT_EQ(net_->seen.back(), torch::kBFloat16);
    EXPECT_EQ(net_->layer->weight.scalar_type(), torch::kFloat32);
  }
  loss.backward();
  EXPECT_EQ(net_->layer->weight.grad().scalar_type(), torch::kFloat32);
  EXPECT_EQ(Seen(), torch::kFloat32) << "autocast has ended";
}

TEST_F(PrecisionTest, OnTheCpuOnlyBfloat16ChangesTheType) {
  for (const auto precision : {TrainingSpec::FLOAT32, TrainingSpec::TF32, TrainingSpec::FLOAT16}) {
    const Autocast autocast(precision, torch::kCPU);
    EXPECT_EQ(Seen(), torch::kFloat32) << TrainingSpec::Precision_Name(precision);
  }
  const Autocast elsewhere(TrainingSpec::BFLOAT16, torch::kCUDA);
  EXPECT_EQ(Seen(), torch::kFloat32) << "autocast is for another device";
}

TEST_F(PrecisionTest, RestoresThePreviousModeAfterNestingAndExceptions) {
  {
    const Autocast outer(TrainingSpec::BFLOAT16, torch::kCPU);
    { const Autocast inner(TrainingSpec::BFLOAT16, torch::kCPU); }
    EXPECT_EQ(Seen(), torch::kBFloat16) << "the outer scope continues";
    { const Autocast nothing(TrainingSpec::FLOAT32, torch::kCPU); }
    EXPECT_EQ(Seen(), torch::kBFloat16);
  }
  EXPECT_EQ(Seen(), torch::kFloat32);
  try {
    const Autocast autocast(TrainingSpec::BFLOAT16, torch::kCPU);
    throw std::runtime_error("a module's");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(Seen(), torch::kFloat32);
}

TEST_F(PrecisionTest, EachThreadHasItsOwnMode) {
  const Autocast autocast(TrainingSpec::BFLOAT16, torch::kCPU);
  torch::ScalarType without = torch::kBFloat16, with = torch::kFloat32, after = torch::kBFloat16;
  std::thread([&] {
    without = Seen();
    {
      const Autocast own(TrainingSpec::BFLOAT16, torch::kCPU);
      with = Seen();
    }
    after = Seen();
  }).join();
  EXPECT_EQ(without, torch::kFloat32);
  EXPECT_EQ(with, torch::kBFloat16);
  EXPECT_EQ(after, torch::kFloat32);
  EXPECT_EQ(Seen(), torch::kBFloat16) << "this thread's scope continues";
}

// While autocast is on, torch caches the 16-bit copy of a parameter. Later passes must not use that
// copy.
TEST_F(PrecisionTest, DropsCachedParameterCopiesAtTheEnd) {
  torch::Tensor before, after;
  {
    const torch::NoGradGuard no_grad;
    const Autocast autocast(TrainingSpec::BFLOAT16, torch::kCPU);
    before = net_->forward(input_);
  }
  {
    const torch::NoGradGuard no_grad;
    net_->layer->weight.mul_(2);
    net_->layer->bias.mul_(2);
  }
  torch::Tensor loss;
  {
    const Autocast autocast(TrainingSpec::BFLOAT16, torch::kCPU);
    after = net_->forward(input_);
    loss = after.sum();
  }
  EXPECT_TRUE(torch::equal(after, before * 2)) << "the computation used the old values";
  loss.backward();
  ASSERT_TRUE(net_->layer->weight.grad().defined()) << "torch kept a cached copy without a graph";
  EXPECT_GT(net_->layer->weight.grad().abs().sum().item<float>(), 0);
}

TEST_F(PrecisionTest, EachPipelineStageUsesThePrecision) {
  std::vector<std::shared_ptr<Witness>> nets;
  std::vector<ModelStage> stages;
  for (int stage = 0; stage < 3; ++stage) {
    stages.emplace_back(nets.emplace_back(std::make_shared<Witness>()));
  }
  Pipeline pipeline(stages, std::vector<torch::Device>(3, torch::Device(torch::kCPU)),
                    TrainingSpec::BFLOAT16);
  Pipeline::Work work;
  work.inputs = {input_, input_};
  work.loss = [](int, const torch::Tensor& output) { return output.to(torch::kFloat32).mean(); };
  work.before_backward = [] { return absl::OkStatus(); };
  ASSERT_TRUE(pipeline.Run(work).ok());
  for (const auto& net : nets) {
    EXPECT_EQ(net->seen, std::vector<torch::ScalarType>(2, torch::kBFloat16));
    EXPECT_EQ(net->layer->weight.grad().scalar_type(), torch::kFloat32);
    EXPECT_GT(net->layer->weight.grad().abs().sum().item<float>(), 0);
  }
  EXPECT_EQ(Seen(), torch::kFloat32);
}

TEST_F(PrecisionTest, EvaluationAndPredictionUseThePrecision) {
  const TensorDataset samples(input_, torch::randint(4, {6}));
  const Task task(net_, CrossEntropy(), DataSource());
  ASSERT_TRUE(Evaluate(task, &samples, torch::kCPU, TrainingSpec::BFLOAT16).ok());
  EXPECT_EQ(net_->seen.back(), torch::kBFloat16);
  ASSERT_TRUE(Evaluate(task, &samples, torch::kCPU).ok());
  EXPECT_EQ(net_->seen.back(), torch::kFloat32);
  const auto nobody = [](const Batch&, const torch::Tensor&) { return absl::OkStatus(); };
  ASSERT_TRUE(Predict(task, samples, torch::kCPU, TrainingSpec::BFLOAT16, nobody).ok());
  EXPECT_EQ(net_->seen.back(), torch::kBFloat16);
  EXPECT_EQ(Seen(), torch::kFloat32);
}

// Some layers of torch 1.13 refuse inputs of two types on the CPU, for example float32 with
// bfloat16. So this test computes the gradients of each model.
TEST_F(PrecisionTest, BuiltInModelsLearnInBfloat16) {
  for (const std::string name : {"linear", "mlp", "convnet", "resnet18", "transformer"}) {
    SCOPED_TRACE(name);
    JobSpec job;
    job.mutable_model()->set_name(name);
    job.mutable_model()->mutable_transformer()->set_context(8);
    job.mutable_optimizer()->set_learning_rate(0.1);
    job = *NormalizeJobSpec(job);
    DataSource data;
    const bool text = name == "transformer";
    const int64_t side = name == "resnet18" ? 32 : 28;
    DataShape shape;
    shape.classes = text ? 256 : 10;
    if (text) {
      shape.context = 8;
    } else {
      shape.channels = 1;
      shape.height = shape.width = side;
      shape.features = side * side;
    }
    data.train = std::make_shared<Shaped>(
        text ? torch::randint(256, {4, 8}) : torch::randn({4, 1, side, side}),
        text ? torch::randint(256, {4, 8}) : torch::randint(10, {4}), shape);
    const absl::StatusOr<Task> task = MakeTask(job, data);
    ASSERT_TRUE(task.ok()) << task.status();
    const std::vector<int64_t> all = {0, 1, 2, 3};
    const Batch batch = *data.train->Get(all);
    const auto loss_of = [&](TrainingSpec::Precision precision) {
      const Autocast autocast(precision, torch::kCPU);
      return task->objective().loss(task->Forward(batch));
    };
    const auto exact = loss_of(TrainingSpec::FLOAT32).item<float>();
    const torch::Tensor loss = loss_of(TrainingSpec::BFLOAT16);
    EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
    EXPECT_NE(loss.item<float>(), exact);
    EXPECT_NEAR(loss.item<float>(), exact, 0.05 * exact);
    loss.backward();
    for (const torch::Tensor& parameter : task->module().parameters()) {
      ASSERT_TRUE(parameter.grad().defined());
      EXPECT_EQ(parameter.grad().scalar_type(), torch::kFloat32);
      EXPECT_TRUE(parameter.grad().isfinite().all().item<bool>());
    }
    EXPECT_TRUE(Evaluate(*task, data.train.get(), torch::kCPU, TrainingSpec::BFLOAT16).ok());
  }
}

TEST(DevicePrecisionTest, TheCpuRefusesOnlyFloat16) {
  const torch::Device gpu(torch::kCUDA, 0);
  for (const auto precision : {TrainingSpec::FLOAT32, TrainingSpec::TF32, TrainingSpec::BFLOAT16}) {
    EXPECT_TRUE(CheckPrecision(precision, torch::kCPU).ok());
    EXPECT_TRUE(CheckPrecision(precision, gpu).ok());
  }
  EXPECT_TRUE(CheckPrecision(TrainingSpec::FLOAT16, gpu).ok());
  const absl::Status refused = CheckPrecision(TrainingSpec::FLOAT16, torch::kCPU);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "job field training.precision is FLOAT16, but device 'cpu' cannot train in it; "
            "expected FLOAT32 or BFLOAT16 for the CPU, or a GPU (--device=cuda)");
}

TEST(DevicePrecisionTest, Tf32IsOffByDefault) {
  const auto allowed = [] {
    const at::Context& context = at::globalContext();
    EXPECT_EQ(context.allowTF32CuDNN(), context.allowTF32CuBLAS());
    return context.allowTF32CuDNN();
  };
  SetTf32(TrainingSpec::TF32);
  EXPECT_TRUE(allowed());
  for (const auto precision :
       {TrainingSpec::BFLOAT16, TrainingSpec::FLOAT16, TrainingSpec::FLOAT32}) {
    SetTf32(TrainingSpec::TF32);
    SetTf32(precision);
    EXPECT_FALSE(allowed()) << TrainingSpec::Precision_Name(precision);
  }
}

}  // namespace
}  // namespace torchps
