// Tests the memory of replica members in the coordinator's accounting. Each member holds one stage,
// and together the members hold the model once.

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/replica_rig.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/job/job_spec.h"
#include "torchps/worker/models/transformer.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {
namespace {

constexpr uint64_t kSeed = 5;

JobSpec Job() {
  JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        training { epochs: 1 batch_size: 4 balance: EQUAL global_batch: false evaluate: false }
        optimizer {
          sgd {}
          learning_rate: 0.05
        }
        consistency { mode: ASYNC prefetch: false }
        wire { block_bytes: 65536 })pb",
      &job));
  job.set_seed(kSeed);
  absl::StatusOr<JobSpec> normalised = NormalizeJobSpec(std::move(job));
  EXPECT_TRUE(normalised.ok()) << normalised.status();
  return *normalised;
}

std::vector<int64_t> GetParameters(const std::vector<ModelStage>& stages) {
  std::vector<int64_t> parameters;
  for (const ModelStage& stage : stages) {
    parameters.push_back(0);
    for (const torch::Tensor& parameter : stage.module()->parameters()) {
      parameters.back() += parameter.numel();
    }
  }
  return parameters;
}

// Trains one replica and compares the members' reported memory with the stages: values and
// gradients of each stage, once. Returns the largest member's share of the memory. If the
// accounting is wrong, returns a share above any bound.
double GetLargestPart(const std::string& what, const ReplicaRig::Options& options) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  const std::vector<int64_t> parameters = GetParameters(options.make());
  ReplicaRig rig(options);
  const std::vector<std::vector<absl::Status>> outcomes = rig.Run(/*replicas=*/1);
  for (const absl::Status& outcome : outcomes.front()) {
    EXPECT_TRUE(outcome.ok()) << outcome;
  }
  const JobStatus job = rig.Job();
  if (job.slot_size() != 1 || job.slot(0).member_size() != static_cast<int>(parameters.size())) {
    ADD_FAILURE() << "expected one slot with " << parameters.size() << " members:\n"
                  << job.DebugString();
    return kWrong;
  }
  uint64_t whole = 0;
  uint64_t largest = 0;
  int64_t trained = 0;
  for (size_t stage = 0; stage < parameters.size(); ++stage) {
    const ReplicaMember& member = job.slot(0).member(static_cast<int>(stage));
    EXPECT_EQ(member.stage(), static_cast<int>(stage));
    EXPECT_EQ(member.parameters(), parameters[stage]) << "stage " << stage;
    EXPECT_EQ(member.model_bytes(), static_cast<uint64_t>(parameters[stage]) * 2 * sizeof(float))
        << "stage " << stage;
    EXPECT_TRUE(member.own_process());
    trained += parameters[stage];
    whole += member.model_bytes();
    largest = std::max(largest, member.model_bytes());
  }
  EXPECT_EQ(job.parameters(), trained);
  if (whole == 0) return kWrong;
  const double part = static_cast<double>(largest) / static_cast<double>(whole);
  std::cout << what << ": the largest member holds " << part << " of it (seed " << kSeed << ")"
            << std::endl;
  return part;
}

// Returns options with the built-in transformer in two stages. With two layers it has the size of
// the model in deploy/jobs/transformer_text.textproto.
ReplicaRig::Options TransformerOverTwo(int64_t layers) {
  Transformer::Options shape;
  shape.layers = layers;
  ReplicaRig::Options options;
  options.job = Job();
  options.make = [shape] {
    torch::manual_seed(kSeed);
    return Transformer(shape).InStages(2)->stages();
  };
  options.objective = NextByteCrossEntropy();
  torch::manual_seed(kSeed + 1);
  const torch::Tensor text = torch::randint(0, shape.vocabulary, {8, shape.context + 1});
  options.data.train = std::make_shared<TensorDataset>(text.slice(1, 0, shape.context).contiguous(),
                                                       text.slice(1, 1).contiguous());
  return options;
}

TEST(ReplicaMemoryTest, NoMemberHoldsMoreThan60PercentOfATransformerOverTwo) {
  for (const int64_t layers : {2, 4}) {
    const std::string what = absl::StrCat("a transformer of ", layers, " layers over two");
    EXPECT_LE(GetLargestPart(what, TransformerOverTwo(layers)), 1.2 / 2) << what;
  }
}

// The network has 784, 512, 256 and 10 units, with one layer in each stage.
TEST(ReplicaMemoryTest, TheLargestMemberHoldsExactlyTheLargestLayer) {
  ReplicaRig::Options options;
  options.job = Job();
  options.make = []() -> std::vector<ModelStage> {
    torch::manual_seed(kSeed);
    using torch::nn::Linear;
    return {torch::nn::Sequential(Linear(784, 512), torch::nn::ReLU()),
            torch::nn::Sequential(Linear(512, 256), torch::nn::ReLU()),
            torch::nn::Sequential(Linear(256, 10))};
  };
  torch::manual_seed(kSeed + 1);
  options.data.train =
      std::make_shared<TensorDataset>(torch::randn({8, 784}), torch::randint(0, 10, {8}));
  EXPECT_DOUBLE_EQ(GetLargestPart("784-512-256-10 over three", options), 401920.0 / 535818.0);
}

}  // namespace
}  // namespace torchps
