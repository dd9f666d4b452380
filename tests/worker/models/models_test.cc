// Tests the contract of the models, and each model's specifics.

#include <torch/torch.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "torchps/job/job_spec.h"
#include "torchps/worker/models/model_registry.h"
#include "torchps/worker/models/transformer.h"
#include "torchps/worker/models/vision_models.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

int64_t ParameterCount(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

// Eight random samples of a shape, drawn once.
class FixedData : public Dataset {
 public:
  explicit FixedData(const DataShape& shape) : shape_(shape) {
    if (shape.context > 0) {
      batch_.input = torch::randint(shape.classes, {8, shape.context}, torch::kInt64);
      batch_.target = batch_.input.roll(-1, 1);
    } else {
      batch_.input = shape.channels > 0
                         ? torch::randn({8, shape.channels, shape.height, shape.width})
                         : torch::randn({8, shape.features});
      batch_.target = torch::arange(8, torch::kInt64).remainder(shape.classes);
    }
  }

  int64_t size() const override { return 8; }
  DataShape shape() const override { return shape_; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const torch::Tensor rows =
        torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()), torch::kInt64);
    return Batch{batch_.input.index_select(0, rows), batch_.target.index_select(0, rows)};
  }

 private:
  const DataShape shape_;
  Batch batch_;
};

// Returns the number of elements of each parameter, by name.
std::map<std::string, int64_t> Named(const torch::nn::Module& module) {
  std::map<std::string, int64_t> named;
  for (const auto& item : module.named_parameters()) named[item.key()] = item.value().numel();
  return named;
}

void ExpectSharedOut(const torch::nn::Module& whole, const Stages& cut) {
  std::map<std::string, int64_t> all;
  for (const ModelStage& stage : cut->stages()) {
    for (const auto& [name, elements] : Named(*stage.module())) {
      EXPECT_TRUE(all.emplace(name, elements).second) << "two stages have " << name;
    }
  }
  EXPECT_EQ(all, Named(whole));
}

TEST(CutModelTest, StagesDivideTheTensorsAndComputeTheSame) {
  torch::manual_seed(3);
  Mlp mlp(12, {8, 6}, 4);
  const torch::Tensor rows = torch::randn({5, 3, 4});
  for (const int stages : {1, 2, 3}) {
    Stages cut = mlp.InStages(stages);
    ExpectSharedOut(mlp, cut);
    EXPECT_TRUE(torch::equal(cut->forward(rows), mlp.forward(rows))) << stages;
  }
  Transformer::Options shape;
  shape.layers = 4;
  shape.width = 16;
  shape.context = 7;
  shape.vocabulary = 30;  // no multiple of the context, so the embedding is padded
  Transformer transformer(shape);
  for (const int64_t length : {int64_t{7}, int64_t{1}}) {
    const torch::Tensor text = torch::randint(30, {5, length}, torch::kInt64);
    for (const int stages : {1, 2, 4}) {
      Stages cut = transformer.InStages(stages);
      ExpectSharedOut(transformer, cut);
      EXPECT_TRUE(torch::allclose(cut->forward(text), transformer.forward(text), 1e-5, 1e-6))
          << stages;
    }
  }
}

TEST(CutModelTest, RefusesAModelThatCannotBeCut) {
  JobSpec job;
  job.mutable_model()->set_name("linear");
  EXPECT_THAT(std::string(CutModule(job, LinearModel(4, 2), 2).status().message()),
              HasSubstr("\"linear\" cannot be cut into stages; expected mlp or transformer"));
  EXPECT_THAT(std::string(CutModule(job, Mlp(4, {3}, 2), 3).status().message()),
              HasSubstr("cannot cut the model into 3 stages: it has 2 layers"));
  EXPECT_TRUE(CutModule(job, Mlp(4, {3}, 2), 2).ok());
}

DataSource Images(int64_t channels, int64_t side, int64_t classes) {
  DataShape shape;
  shape.channels = channels;
  shape.height = side;
  shape.width = side;
  shape.features = channels * side * side;
  shape.classes = classes;
  return {std::make_shared<FixedData>(shape), nullptr, "images made for a test"};
}

DataSource Rows() {
  DataShape shape;
  shape.features = 5;
  shape.classes = 3;
  return {std::make_shared<FixedData>(shape), nullptr, "rows made for a test"};
}

DataSource Text() {
  DataShape shape;
  shape.context = 12;
  shape.classes = 256;
  return {std::make_shared<FixedData>(shape), nullptr, "text made for a test"};
}

JobSpec Job(const std::string& model) {
  JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "model { " + model + " } optimizer { sgd {} learning_rate: 0.1 }", &job));
  absl::StatusOr<JobSpec> normalized = NormalizeJobSpec(job);
  EXPECT_TRUE(normalized.ok()) << normalized.status();
  return *normalized;
}

struct Case {
  std::string name;
  std::string model;
  DataSource (*data)();
  std::vector<int64_t> output;  // for a batch of 8
};

class EveryModel : public ::testing::TestWithParam<Case> {
 protected:
  EveryModel() { torch::manual_seed(1); }

  Task Make() const { return *MakeTask(Job(GetParam().model), GetParam().data()); }

  static Batch All(const Task& task) { return *task.data().train->Get({0, 1, 2, 3, 4, 5, 6, 7}); }
};

TEST_P(EveryModel, ReturnsOneRowOfLogitsPerPrediction) {
  const Task task = Make();
  const Batch batch = All(task);
  const Pass pass = task.Forward(batch);
  const torch::Tensor& output = pass.output();
  EXPECT_EQ(output.sizes(), GetParam().output);
  EXPECT_EQ(output.scalar_type(), torch::kFloat32);
  const Metric::Part right = task.objective().metrics.at(0).measure(pass);
  EXPECT_GE(right.sum, 0);
  EXPECT_LE(right.sum, right.weight);
  EXPECT_EQ(right.weight, static_cast<double>(batch.target.numel()));
}

TEST_P(EveryModel, BeginsNearTheLossOfGuessing) {
  const Task task = Make();
  const Batch batch = All(task);
  const double loss = task.objective().loss(task.Forward(batch)).item<double>();
  EXPECT_NEAR(loss, std::log(GetParam().output.back()), 1.0);
}

TEST_P(EveryModel, AGradientReachesEachParameter) {
  const Task task = Make();
  const Batch batch = All(task);
  task.objective().loss(task.Forward(batch)).backward();
  for (const auto& named : task.module().named_parameters()) {
    ASSERT_TRUE(named.value().grad().defined()) << named.key();
    EXPECT_GT(named.value().grad().abs().max().item<float>(), 0) << named.key();
  }
}

TEST_P(EveryModel, IsDeterminedByTheGeneratorsSeed) {
  torch::manual_seed(7);
  const Task one = Make();
  torch::manual_seed(7);
  const Task same = Make();
  const Task other = Make();
  bool differs = false;
  for (const auto& named : one.module().named_parameters()) {
    EXPECT_TRUE(named.value().equal(same.module().named_parameters()[named.key()])) << named.key();
    differs = differs || !named.value().equal(other.module().named_parameters()[named.key()]);
  }
  EXPECT_TRUE(differs);
}

TEST_P(EveryModel, MemorizesASmallSet) {
  const Task task = Make();
  const Batch batch = All(task);
  torch::optim::Adam adam(task.module().parameters(), torch::optim::AdamOptions(1e-2));
  double first = 0, loss = 0;
  for (int step = 0; step < 20; ++step) {
    adam.zero_grad();
    const torch::Tensor value = task.objective().loss(task.Forward(batch));
    value.backward();
    adam.step();
    loss = value.item<double>();
    if (step == 0) first = loss;
  }
  EXPECT_LT(loss, 0.75 * first);
}

INSTANTIATE_TEST_SUITE_P(
    ModelsTest, EveryModel,
    ::testing::Values(
        Case{"linear_on_images", "name: 'linear'", [] { return Images(3, 8, 10); }, {8, 10}},
        Case{"linear_on_rows", "name: 'linear'", Rows, {8, 3}},
        Case{"mlp_on_images", "name: 'mlp'", [] { return Images(1, 7, 10); }, {8, 10}},
        Case{"mlp_on_rows", "name: 'mlp' hidden: 16 hidden: 8", Rows, {8, 3}},
        Case{"convnet", "name: 'convnet'", [] { return Images(1, 28, 10); }, {8, 10}},
        Case{"convnet_on_odd_colour", "name: 'convnet'", [] { return Images(3, 11, 4); }, {8, 4}},
        Case{"resnet18", "name: 'resnet18'", [] { return Images(3, 8, 10); }, {8, 10}},
        Case{"transformer",
             "name: 'transformer' transformer { layers: 2 heads: 2 width: 32 }",
             Text,
             {8, 12, 256}}),
    [](const auto& info) { return info.param.name; });

TEST(LinearModelTest, IsOneLayer) {
  EXPECT_EQ(ParameterCount(LinearModel(784, 10)), 784 * 10 + 10);
}

TEST(MlpTest, HasALayerPerWidthAndOneMore) {
  EXPECT_EQ(ParameterCount(Mlp(784, {100, 50}, 10)),
            784 * 100 + 100 + 100 * 50 + 50 + 50 * 10 + 10);
  EXPECT_EQ(ParameterCount(Mlp(784, {}, 10)), 7850);
}

TEST(ConvNetTest, HasTheDocumentedParameters) {
  EXPECT_EQ(ParameterCount(ConvNet(1, 28, 28, 10)),
            (25 * 16 + 16) + 2 * 16 + (25 * 16 * 32 + 32) + 2 * 32 + (7 * 7 * 32 * 10 + 10));
}

TEST(ResNet18Test, HasAsManyParametersAsTorchvisions) {
  EXPECT_EQ(ParameterCount(ResNet18(3, 32, 32, 10)), 11'173'962);
  EXPECT_EQ(ParameterCount(ResNet18(3, 224, 224, 1000)), 11'689'512);
}

TEST(ResNet18Test, ParametersHaveTorchvisionsNames) {
  const ResNet18 net(3, 32, 32, 10);
  const auto parameters = net.named_parameters();
  const auto buffers = net.named_buffers();
  EXPECT_EQ(parameters.size(), 62u);
  for (const std::string name :
       {"conv1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight",
        "layer2.0.downsample.1.bias", "layer4.1.bn2.weight", "fc.weight", "fc.bias"}) {
    EXPECT_TRUE(parameters.contains(name)) << name;
  }
  EXPECT_FALSE(parameters.contains("layer1.0.downsample.0.weight"));
  EXPECT_TRUE(buffers.contains("layer3.0.bn1.running_mean"));
}

TEST(ResNet18Test, HalvesLargeImagesTwiceMoreThanSmallOnes) {
  torch::NoGradGuard no_grad;
  ResNet18 large(3, 64, 64, 10);
  EXPECT_EQ(large.named_parameters()["conv1.weight"].size(2), 7);
  EXPECT_EQ(large.forward(torch::randn({2, 3, 64, 64})).sizes(), (std::vector<int64_t>{2, 10}));
  ResNet18 small(1, 28, 28, 10);
  EXPECT_EQ(small.named_parameters()["conv1.weight"].size(2), 3);
  EXPECT_EQ(small.forward(torch::randn({2, 1, 28, 28})).sizes(), (std::vector<int64_t>{2, 10}));
}

class TransformerTest : public ::testing::Test {
 protected:
  static Transformer::Options Small() {
    Transformer::Options options;
    options.layers = 2;
    options.heads = 4;
    options.width = 32;
    options.context = 10;
    return options;
  }
};

TEST_F(TransformerTest, ALaterByteDoesNotChangeEarlierLogits) {
  torch::manual_seed(3);
  torch::NoGradGuard no_grad;
  Transformer net(Small());
  // Initial weights are small. With larger weights, each byte changes the later logits visibly.
  for (torch::Tensor& parameter : net.parameters()) {
    if (parameter.dim() == 2) parameter.mul_(20);
  }
  const torch::Tensor text = torch::randint(256, {1, 10}, torch::kInt64);
  const torch::Tensor before = net.forward(text);
  for (int64_t changed = 0; changed < 10; ++changed) {
    torch::Tensor other = text.clone();
    other[0][changed] = (other[0][changed].item<int64_t>() + 1) % 256;
    const torch::Tensor difference = (net.forward(other) - before).abs().amax({0, 2});
    for (int64_t t = 0; t < 10; ++t) {
      if (t < changed) {
        EXPECT_EQ(difference[t].item<float>(), 0) << changed << " reached back to " << t;
      } else {
        EXPECT_GT(difference[t].item<float>(), 0) << changed << " did not reach " << t;
      }
    }
  }
}

TEST_F(TransformerTest, CountsTheTiedEmbeddingOnce) {
  const Transformer net(Small());
  const int64_t d = 32;
  const int64_t block =
      2 * 2 * d + (3 * d * d + 3 * d) + (d * d + d) + (4 * d * d + 4 * d) + (4 * d * d + d);
  EXPECT_EQ(ParameterCount(net), 256 * d + 10 * d + 2 * block + 2 * d);
  for (const auto& named : net.named_parameters()) {
    if (named.key() != "embedding.weight") {
      EXPECT_NE(named.value().size(0), 256) << named.key();
    }
  }
}

TEST_F(TransformerTest, HasNoBufferToAverage) {
  EXPECT_TRUE(Transformer(Small()).buffers().empty());
}

TEST_F(TransformerTest, AcceptsTextsShorterThanItsContext) {
  Transformer net(Small());
  const torch::Tensor text = torch::randint(256, {2, 10}, torch::kInt64);
  const torch::Tensor whole = net.forward(text);
  const torch::Tensor part = net.forward(text.slice(1, 0, 4));
  EXPECT_TRUE(whole.slice(1, 0, 4).allclose(part, 1e-4, 1e-5));
}

void ExpectRefused(const std::string& model, const DataSource& data, const std::string& part) {
  const auto task = MakeTask(Job(model), data);
  EXPECT_TRUE(absl::IsInvalidArgument(task.status())) << task.status();
  EXPECT_THAT(std::string(task.status().message()), HasSubstr(part));
}

TEST(ModelRegistryTest, ErrorForAnUnknownModelListsTheKnownOnes) {
  ExpectRefused("name: 'vgg'", Rows(),
                "is \"vgg\"; ps_worker has: linear, mlp, convnet, resnet18, transformer");
}

TEST(ModelRegistryTest, RejectsDataThatAModelCannotRead) {
  ExpectRefused("name: 'transformer'", Rows(), "rows made for a test");
  ExpectRefused("name: 'convnet'", Rows(), "rows made for a test");
  ExpectRefused("name: 'resnet18'", Text(), "text made for a test");
  ExpectRefused("name: 'mlp'", Text(), "text made for a test");
  ExpectRefused("name: 'convnet'", Images(1, 3, 10), "4x4 pixels");
}

}  // namespace
}  // namespace torchps
