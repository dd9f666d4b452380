// Tests generated texts of small modules with known weights.

#include "torchps/program/text_generation.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/common/stop_latch.h"
#include "torchps/data/data_registry.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/program/inference.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/state_file.h"
#include "torchps/worker/task.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kContext = 4;

// The logits of the next token depend on the current token t: token t + 1 is most likely, and token
// t + 2 comes second.
struct Bigram : torch::nn::Module {
  explicit Bigram(int64_t vocabulary)
      : next(register_module("next", torch::nn::Embedding(vocabulary, vocabulary))) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor token = torch::arange(vocabulary);
    next->weight.zero_();
    next->weight.index_put_({token, (token + 1) % vocabulary}, 9);
    next->weight.index_put_({token, (token + 2) % vocabulary}, 8);
  }
  torch::Tensor forward(const torch::Tensor& input) {
    TORCH_CHECK(input.size(1) <= kContext, "the module has ", kContext, " positions");
    return next->forward(input);
  }
  torch::nn::Embedding next;
};

DataSource GetSamples(const torch::Tensor& inputs) {
  DataSource data;
  data.train = std::make_shared<TensorDataset>(inputs, torch::zeros({inputs.size(0)}));
  return data;
}

DataSource Tokens() { return GetSamples(torch::zeros({2, kContext}, torch::kInt64)); }

Task BigramTask(int64_t vocabulary) {
  return {std::make_shared<Bigram>(vocabulary), NextByteCrossEntropy(), Tokens()};
}

absl::StatusOr<std::vector<int64_t>> Generated(const Task& task, std::vector<int64_t> prompt,
                                               const Sampling& sampling,
                                               const StopLatch* stop = nullptr) {
  const auto model = TextModel::Open(task, torch::kCPU, TrainingSpec::FLOAT32);
  if (!model.ok()) return model.status();
  return model->Continue(std::move(prompt), sampling, stop);
}

TEST(TextGenerationTest, TemperatureZeroPicksTheMostLikelyToken) {
  const Task task = BigramTask(10);
  const auto tokens = Generated(task, {3}, {/*length=*/9, /*temperature=*/0});
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(*tokens, ElementsAre(3, 4, 5, 6, 7, 8, 9, 0, 1, 2));
}

TEST(TextGenerationTest, TheSeedRepeatsATextAndTopKLimitsTheTokens) {
  const Task task = BigramTask(10);
  const Sampling sampling{/*length=*/100, /*temperature=*/1.5, /*top_k=*/2, /*seed=*/7};
  const std::vector<int64_t> tokens = *Generated(task, {0}, sampling);
  EXPECT_EQ(*Generated(task, {0}, sampling), tokens);
  Sampling other = sampling;
  other.seed = 8;
  EXPECT_NE(*Generated(task, {0}, other), tokens);
  std::set<int64_t> distances;
  for (size_t i = 1; i < tokens.size(); ++i)
    distances.insert((tokens[i] - tokens[i - 1] + 10) % 10);
  EXPECT_THAT(distances, ElementsAre(1, 2));
  // With a tiny temperature, the most likely token is picked. With a huge one, each token is about
  // equally likely.
  other.temperature = 1e-300;
  EXPECT_EQ(*Generated(task, {0}, other), *Generated(task, {0}, {/*length=*/100, 0}));
  other.temperature = 1e9;
  other.top_k = 0;
  const std::vector<int64_t> even = *Generated(task, {0}, other);
  EXPECT_EQ(std::set<int64_t>(even.begin(), even.end()).size(), 10u);
}

TEST(TextGenerationTest, RefusesAWrongPrompt) {
  const Task task = BigramTask(10);
  const auto message = [&](std::vector<int64_t> prompt) {
    const auto tokens = Generated(task, std::move(prompt), {});
    EXPECT_TRUE(absl::IsInvalidArgument(tokens.status())) << tokens.status();
    return std::string(tokens.status().message());
  };
  EXPECT_EQ(message({4, 10}), "token 1 of the prompt is 10; the model's vocabulary is 0 to 9");
  EXPECT_THAT(message({-1}), HasSubstr("token 0 of the prompt is -1"));
  EXPECT_THAT(message({}), HasSubstr("the prompt is empty"));
  EXPECT_THAT(std::string(GetTokens("4 To be", TokenForm::kIds).status().message()),
              HasSubstr("expected a prompt such as \"17 4 250\", got \"To\""));
  EXPECT_THAT(*GetTokens("4 17", TokenForm::kIds), ElementsAre(4, 17));
  EXPECT_THAT(*GetTokens("a\xff", TokenForm::kBytes), ElementsAre(97, 255));
}

struct Average : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) { return input.to(torch::kFloat32).mean(1); }
};

TEST(TextGenerationTest, RefusesAModelOfAnotherShape) {
  const auto message = [](const torch::Tensor& inputs) {
    const Task task(std::make_shared<Average>(), MeanSquaredError(), GetSamples(inputs));
    const auto model = TextModel::Open(task, torch::kCPU, TrainingSpec::FLOAT32);
    EXPECT_TRUE(absl::IsFailedPrecondition(model.status())) << model.status();
    return std::string(model.status().message());
  };
  EXPECT_THAT(message(torch::zeros({2, 5})),
              HasSubstr("expected inputs of int64 [batch, positions], got Float [1, 5]"));
  EXPECT_THAT(message(torch::zeros({2, 5}, torch::kInt64)),
              HasSubstr("expected outputs of [batch, positions, vocabulary], got Float [1]"));
}

TEST(TextGenerationTest, NonFiniteOutputsAndAStopEndGeneration) {
  const auto net = std::make_shared<Bigram>(10);
  const Task task(net, NextByteCrossEntropy(), Tokens());
  StopLatch stop;
  stop.Stop("interrupted");
  EXPECT_EQ(Generated(task, {0}, {}, &stop).status(), absl::CancelledError("interrupted"));
  const torch::NoGradGuard no_grad;
  net->next->weight[2].fill_(NAN);
  const auto tokens = Generated(task, {0}, {/*length=*/9, /*temperature=*/0});
  EXPECT_TRUE(absl::IsFailedPrecondition(tokens.status())) << tokens.status();
  EXPECT_THAT(std::string(tokens.status().message()), HasSubstr("after token 2 are not finite"));
}

// Runs kGenerate with a model file of a Bigram of `vocabulary` tokens. Returns the text that it
// writes.
absl::StatusOr<std::string> Written(const std::string& source, int64_t vocabulary,
                                    const std::string& prompt) {
  const std::string folder = ::testing::TempDir();
  Preprocessing preprocessing;
  preprocessing.context = kContext;
  preprocessing.classes = vocabulary;
  InferenceRequest look;
  look.what = InferenceRequest::kGenerate;
  look.model = folder + "/bigram.safetensors";
  look.prompt = prompt;
  look.sampling = {/*length=*/3, /*temperature=*/0};
  look.has_token_ids = source == "tokens";
  look.out = folder + "/generated.txt";
  EXPECT_TRUE(SaveState(Bigram(vocabulary), look.model, preprocessing.ToMetadata()).ok());
  JobSpec job;
  job.mutable_data()->set_source(source);
  job.mutable_data()->set_path("/of/the/training/machine");
  if (absl::Status status = PrepareJob(look, &job); !status.ok()) return status;
  const Task task(std::make_shared<Bigram>(vocabulary), NextByteCrossEntropy(), OpenData(job));
  if (!task.status().ok()) return task.status();
  if (absl::Status status = RunInference(task, look); !status.ok()) return status;
  std::ifstream file(look.out, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(TextGenerationTest, GeneratesWithoutTheTrainingData) {
  EXPECT_EQ(*Written("text", 256, "be\xfe"), std::string("be\xfe\xff\0\1\n", 7));
  EXPECT_EQ(*Written("tokens", 256, "97 98"), "97 98 99 100 101\n");
  EXPECT_EQ(*Written("tokens", 300, "298 299"), "298 299 0 1 2\n");
  const absl::Status status = Written("csv", 256, "To be").status();
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("this model does not generate text: it was trained on data.source \"csv\""));
}

}  // namespace
}  // namespace torchps
