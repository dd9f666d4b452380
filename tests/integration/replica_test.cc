// Compares a model divided over several processes, one stage each, with one process that holds the
// whole model. Results may differ only by rounding.

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/replica_rig.h"
#include "torchps/common/mutex.h"
#include "torchps/data/dataset.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/job/job_spec.h"
#include "torchps/worker/models/transformer.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {
namespace {

constexpr uint64_t kSeed = 5;
constexpr double kTolerance = 1e-5;

// Samples of 784 numbers with classes from a random linear map.
DataSource Digits(int64_t train, int64_t test = 0) {
  torch::manual_seed(kSeed + 1);
  const torch::Tensor inputs = torch::randn({train + test, 784});
  const torch::Tensor targets = torch::matmul(inputs, torch::randn({784, 10})).argmax(1);
  DataSource source;
  source.train =
      std::make_shared<TensorDataset>(inputs.slice(0, 0, train), targets.slice(0, 0, train));
  if (test > 0) {
    source.test = std::make_shared<TensorDataset>(inputs.slice(0, train), targets.slice(0, train));
  }
  return source;
}

// Returns a network of 784, 512, 256 and 10 units in three stages.
std::vector<ModelStage> ThreeLayers() {
  torch::manual_seed(kSeed);
  using torch::nn::Linear;
  return {torch::nn::Sequential(Linear(784, 512), torch::nn::ReLU()),
          torch::nn::Sequential(Linear(512, 256), torch::nn::ReLU()),
          torch::nn::Sequential(Linear(256, 10))};
}

JobSpec Job(const std::string& text) {
  JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  job.set_seed(kSeed);
  job.mutable_training()->set_balance(TrainingSpec::EQUAL);
  job.mutable_training()->set_global_batch(false);
  absl::StatusOr<JobSpec> normalised = NormalizeJobSpec(std::move(job));
  EXPECT_TRUE(normalised.ok()) << normalised.status();
  return *normalised;
}

ReplicaRig::Options Digits(const std::string& job, int servers) {
  ReplicaRig::Options options;
  options.job = Job(job);
  options.make = ThreeLayers;
  options.data = Digits(/*train=*/240);
  options.servers = servers;
  return options;
}

void ExpectAllOk(const std::vector<std::vector<absl::Status>>& outcomes) {
  for (size_t replica = 0; replica < outcomes.size(); ++replica) {
    for (size_t stage = 0; stage < outcomes[replica].size(); ++stage) {
      EXPECT_TRUE(outcomes[replica][stage].ok())
          << "replica " << replica << ", stage " << stage << ": " << outcomes[replica][stage];
    }
  }
}

// Trains the job once with one replica and once with one undivided worker, and compares the values.
void ExpectEquivalent(const std::string& what, const ReplicaRig::Options& options,
                      double tolerance = kTolerance) {
  ReplicaRig divided(options);
  ExpectAllOk(divided.Run(/*replicas=*/1));
  ReplicaRig undivided(options);
  const absl::Status trained = undivided.RunUndivided();
  ASSERT_TRUE(trained.ok()) << trained;
  const torch::Tensor ours = divided.ReadServers();
  const torch::Tensor theirs = undivided.ReadServers();
  const double difference = ((ours - theirs).norm() / theirs.norm()).item<double>();
  std::cout << what << ": relative difference of all values " << difference << " (seed " << kSeed
            << ")" << std::endl;
  EXPECT_LE(difference, tolerance);
  const torch::Tensor first = [&] {
    std::vector<torch::Tensor> values;
    for (const ModelStage& stage : options.make()) {
      for (const torch::Tensor& parameter : stage.module()->parameters()) {
        values.push_back(parameter.detach().flatten());
      }
    }
    return torch::cat(values);
  }();
  EXPECT_GT((theirs.slice(0, 0, first.numel()) - first).norm().item<double>(), 1e-2)
      << "training moved the parameters too little for a meaningful comparison";
}

constexpr char kAsync[] = R"pb(
  training { epochs: 2 batch_size: 24 evaluate: false }
  optimizer {
    sgd { momentum: 0.9 }
    learning_rate: 0.05
  }
  consistency { mode: ASYNC prefetch: false }
  wire { block_bytes: 65536 })pb";

TEST(ReplicaTest, ThreeProcessesMatchOneProcess) {
  ExpectEquivalent("MLP over three, 2 servers", Digits(kAsync, /*servers=*/2));
}

// The first request for a batch waits until a second request arrives, for at most 30 s.
class WaitsForASecond final : public Dataset {
 public:
  explicit WaitsForASecond(std::shared_ptr<const Dataset> samples) : samples_(std::move(samples)) {}
  int64_t size() const override { return samples_->size(); }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    // Single samples are read before training, for the data fingerprint.
    if (indices.size() > 1) Wait();
    return samples_->Get(indices);
  }
  bool has_come() const {
    const MutexLock lock(&mutex_);
    return !gave_up_;
  }

 private:
  void Wait() const {
    const MutexLock lock(&mutex_);
    ++batches_;
    changed_.SignalAll();
    const absl::Time latest = absl::Now() + absl::Seconds(30);
    while (batches_ < 2 && !gave_up_) {
      changed_.WaitFor(&mutex_, latest - absl::Now());
      gave_up_ = batches_ < 2 && absl::Now() >= latest;
    }
  }

  const std::shared_ptr<const Dataset> samples_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable int batches_ = 0;
  mutable bool gave_up_ = false;
};

TEST(ReplicaTest, LoaderThreadsPrefetchTheSameBatches) {
  ReplicaRig::Options options = Digits(kAsync, /*servers=*/2);
  const auto train = std::make_shared<WaitsForASecond>(options.data.train);
  options.data.train = train;
  options.loader_threads = 2;
  ExpectEquivalent("loader threads", options);
  EXPECT_TRUE(train->has_come()) << "while the first stage waits for its first batch";
}

TEST(ReplicaTest, OneServerAndFiveServersMatchOneProcess) {
  ExpectEquivalent("MLP over three, 1 server", Digits(kAsync, /*servers=*/1));
  ExpectEquivalent("MLP over three, 5 servers", Digits(kAsync, /*servers=*/5));
}

TEST(ReplicaTest, SyncMatchesOneProcess) {
  ExpectEquivalent("MLP over three, SYNC",
                   Digits(R"pb(
                            training { epochs: 2 batch_size: 24 evaluate: false }
                            optimizer {
                              adam {}
                              learning_rate: 0.002
                            }
                            consistency { mode: SYNC }
                            wire { block_bytes: 65536 })pb",
                          /*servers=*/2));
}

TEST(ReplicaTest, ClippingAndAccumulationMatchOneProcess) {
  ExpectEquivalent(
      "MLP over three, clipped, two passes",
      Digits(R"pb(
               training { epochs: 2 batch_size: 12 accumulate: 2 clip_norm: 0.5 evaluate: false }
               optimizer {
                 sgd {}
                 learning_rate: 0.2
               }
               consistency { mode: ASYNC prefetch: false }
               wire { block_bytes: 65536 })pb",
             /*servers=*/2));
}

TEST(ReplicaTest, ParameterGroupsUseTheWholeModelNames) {
  ExpectEquivalent("MLP over three, with a group",
                   Digits(R"pb(
                            training { epochs: 1 batch_size: 24 evaluate: false }
                            optimizer {
                              sgd { momentum: 0.9 }
                              learning_rate: 0.05
                              group { pattern: "2.*" learning_rate_factor: 0.5 }
                            }
                            consistency { mode: ASYNC prefetch: false }
                            wire { block_bytes: 65536 })pb",
                          /*servers=*/2));
}

TEST(ReplicaTest, LossyPushesMatchOneProcessWithinTheirRounding) {
  const ReplicaRig::Options options = Digits(R"pb(
                                               training { epochs: 1 batch_size: 24 evaluate: false }
                                               optimizer {
                                                 sgd { momentum: 0.9 }
                                                 learning_rate: 0.05
                                                 group { pattern: "2.*" learning_rate_factor: 0.5 }
                                               }
                                               consistency { mode: ASYNC prefetch: false }
                                               wire {
                                                 block_bytes: 65536
                                                 shared_memory: false
                                                 push { kind: BFLOAT16 }
                                               })pb",
                                             /*servers=*/2);
  // Both runs round each push to BFLOAT16. If their gradients differ in the last bit near the
  // middle between two BFLOAT16 numbers, one run may round up and the other down.
  ExpectEquivalent("MLP over three, BFLOAT16, a group", options, /*tolerance=*/1e-4);
}

// Layers of a decoder, in stages that exchange one tensor.
struct Embed : torch::nn::Module {
  Embed(int64_t vocabulary, int64_t context, int64_t width)
      : words(vocabulary, width), places(context, width) {
    register_module("words", words);
    register_module("places", places);
  }
  torch::Tensor forward(const torch::Tensor& input) {
    return words->forward(input) + places->weight.slice(0, 0, input.size(1));
  }
  torch::nn::Embedding words, places;
};

struct Decode : torch::nn::Module {
  explicit Decode(int64_t width)
      : norm(torch::nn::LayerNormOptions({width})),
        qkv(width, 3 * width),
        mix(width, width),
        widen(width, 4 * width),
        narrow(4 * width, width) {
    register_module("norm", norm);
    register_module("qkv", qkv);
    register_module("mix", mix);
    register_module("widen", widen);
    register_module("narrow", narrow);
  }
  torch::Tensor forward(const torch::Tensor& input) {
    const int64_t length = input.size(1);
    const torch::Tensor future = torch::ones({length, length}, torch::kBool).triu(1);
    const std::vector<torch::Tensor> parts = qkv->forward(norm->forward(input)).chunk(3, -1);
    const torch::Tensor score =
        (parts[0].matmul(parts[1].transpose(-2, -1)) / std::sqrt(input.size(2)))
            .masked_fill(future, -std::numeric_limits<float>::infinity());
    const torch::Tensor x = input + mix->forward(score.softmax(-1).matmul(parts[2]));
    return x + narrow->forward(torch::gelu(widen->forward(x)));
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear qkv, mix, widen, narrow;
};

constexpr int64_t kVocabulary = 64, kContext = 16, kWidth = 64;

// The embedding in the first half has about as many parameters as the head in the second.
std::vector<ModelStage> TwoHalvesOfATransformer() {
  torch::manual_seed(kSeed);
  return {torch::nn::Sequential(std::make_shared<Embed>(kVocabulary, kContext, kWidth),
                                std::make_shared<Decode>(kWidth)),
          torch::nn::Sequential(std::make_shared<Decode>(kWidth),
                                torch::nn::Linear(kWidth, kVocabulary))};
}

ReplicaRig::Options Words() {
  ReplicaRig::Options options;
  options.job = Job(R"pb(
    training { epochs: 2 batch_size: 16 clip_norm: 1 evaluate: false }
    optimizer {
      sgd { momentum: 0.9 }
      learning_rate: 0.1
    }
    consistency { mode: ASYNC prefetch: false }
    wire { block_bytes: 16384 })pb");
  options.make = TwoHalvesOfATransformer;
  options.objective = NextByteCrossEntropy();
  torch::manual_seed(kSeed + 2);
  const torch::Tensor text = torch::randint(0, kVocabulary, {160, kContext + 1});
  options.data.train = std::make_shared<TensorDataset>(text.slice(1, 0, kContext).contiguous(),
                                                       text.slice(1, 1).contiguous());
  return options;
}

TEST(ReplicaTest, ATransformerOverTwoProcessesMatchesOneProcess) {
  ExpectEquivalent("transformer over two", Words());
}

TEST(ReplicaTest, ATiedEmbeddingOverTwoProcessesMatchesOneProcess) {
  ReplicaRig::Options options = Words();
  options.make = [] {
    torch::manual_seed(kSeed);
    Transformer::Options shape;
    shape.width = kWidth;
    shape.context = kContext;
    shape.vocabulary = kVocabulary;
    return Transformer(shape).InStages(2)->stages();
  };
  ExpectEquivalent("built-in transformer over two", options);
}

// Returns three stages. The first and the last have batch-norm statistics, which are averaged.
std::vector<ModelStage> WithBatchNorm() {
  torch::manual_seed(kSeed);
  using torch::nn::Linear;
  return {torch::nn::Sequential(Linear(784, 64), torch::nn::BatchNorm1d(64), torch::nn::ReLU()),
          torch::nn::Sequential(Linear(64, 48), torch::nn::ReLU()),
          torch::nn::Sequential(torch::nn::BatchNorm1d(48), Linear(48, 10))};
}

TEST(ReplicaTest, ServersReceiveTheAveragedBuffersOfEachStage) {
  ReplicaRig::Options options = Digits(kAsync, /*servers=*/2);
  options.make = WithBatchNorm;
  ReplicaRig rig(options);
  ExpectAllOk(rig.Run(/*replicas=*/1));
  const torch::Tensor values = rig.ReadServers();
  EXPECT_TRUE(values.isfinite().all().item<bool>());
  // Running means begin with 0, and running variances with 1.
  const torch::Tensor statistics = values.slice(0, values.numel() - 2 * (64 + 48));
  EXPECT_GT((statistics.slice(0, 0, 64)).norm().item<double>(), 1e-3);
  EXPECT_GT((statistics.slice(0, 2 * 64, 2 * 64 + 48)).norm().item<double>(), 1e-3);
}

TEST(ReplicaTest, AnEvaluationOverThreeStagesMatchesOneProcess) {
  const std::string job = R"pb(
    training { epochs: 1 batch_size: 24 }
    optimizer {
      sgd {}
      learning_rate: 0.05
    }
    consistency { mode: ASYNC prefetch: false }
    wire { block_bytes: 65536 })pb";
  ReplicaRig::Options options = Digits(job, /*servers=*/2);
  options.data = Digits(/*train=*/240, /*test=*/6500);
  ReplicaRig divided(options);
  ExpectAllOk(divided.Run(/*replicas=*/1));
  ReplicaRig undivided(options);
  ASSERT_TRUE(undivided.RunUndivided().ok());
  const JobStatus ours = divided.Job();
  const JobStatus theirs = undivided.Job();
  ASSERT_EQ(ours.evaluation_size(), 1);
  ASSERT_EQ(theirs.evaluation_size(), 1);
  EXPECT_EQ(ours.evaluation(0).samples(), 6500);
  EXPECT_NEAR(ours.evaluation(0).loss(), theirs.evaluation(0).loss(), 1e-4);
  ASSERT_EQ(ours.evaluation(0).metric_size(), 1);
  EXPECT_EQ(ours.evaluation(0).metric(0).name(), "accuracy");
  EXPECT_NEAR(ours.evaluation(0).metric(0).value(), theirs.evaluation(0).metric(0).value(), 2e-3);
}

// Throws an object that is not a std::exception during training.
struct Trap : torch::nn::Module {
  Trap() : layer(register_module("layer", torch::nn::Linear(1, 1))) {}
  torch::Tensor forward(const torch::Tensor& input) {
    if (is_training()) throw 7;
    return input;
  }
  torch::nn::Linear layer;
};

TEST(ReplicaTest, AStageThatThrowsANonExceptionEndsAllMembersAndIsReported) {
  for (const size_t stage : {0, 2}) {
    ReplicaRig::Options options = Digits(kAsync, /*servers=*/1);
    options.make = [stage] {
      std::vector<ModelStage> stages = ThreeLayers();
      stages[stage] = ModelStage(std::make_shared<Trap>());
      return stages;
    };
    ReplicaRig rig(options);
    const auto outcomes = rig.Run(/*replicas=*/1);
    for (size_t i = 0; i < outcomes[0].size(); ++i) {
      EXPECT_FALSE(outcomes[0][i].ok()) << "stage " << i;
    }
    EXPECT_EQ(outcomes[0][stage],
              absl::InternalError(absl::StrCat("stage ", stage,
                                               " of a training step failed: it threw a value of "
                                               "type int, which is not a std::exception")));
  }
}

TEST(ReplicaTest, EveryProcessRefusesAnUnmeasuredBestMetric) {
  ReplicaRig::Options options = Digits(
      "training { epochs: 1 batch_size: 48 best_by: 'perplexity' } "
      "optimizer { sgd {} learning_rate: 0.05 } consistency { prefetch: false }",
      /*servers=*/1);
  ReplicaRig rig(options);
  const auto outcomes = rig.Run(/*replicas=*/1);
  for (const absl::Status& outcome : outcomes[0]) {
    EXPECT_EQ(outcome, absl::InvalidArgumentError("training.best_by is \"perplexity\"; this "
                                                  "program measures accuracy, loss"));
  }
}

TEST(ReplicaTest, TheLeaderRefusesALastStageThatMeasuresOtherMetrics) {
  ReplicaRig::Options options = Digits(
      "training { epochs: 1 batch_size: 48 } optimizer { sgd {} learning_rate: 0.05 } "
      "consistency { prefetch: false }",
      /*servers=*/1);
  options.data = Digits(/*train=*/48, /*test=*/10);
  options.last_objective = options.objective;
  Metric more = Accuracy();
  more.name = "again";
  options.last_objective->metrics.push_back(more);
  ReplicaRig rig(options);
  const auto outcomes = rig.Run(/*replicas=*/1);
  const absl::Status& leader = outcomes[0][0];
  EXPECT_TRUE(absl::IsFailedPrecondition(leader)) << leader;
  EXPECT_EQ(leader.message(),
            "the replica's last stage measures 2 metrics and its leader 1; start all of its "
            "processes with the same program");
  for (const int stage : {1, 2}) {
    EXPECT_TRUE(absl::IsUnavailable(outcomes[0][stage])) << outcomes[0][stage];
  }
}

TEST(ReplicaTest, TwoReplicasPushAllBlocksOfEachStep) {
  for (const char* mode : {"ASYNC", "SYNC"}) {
    ReplicaRig::Options options =
        Digits(absl::StrCat("workers: 2 training { epochs: 2 batch_size: 12 evaluate: false } "
                            "optimizer { sgd {} learning_rate: 0.05 } consistency { mode: ",
                            mode, " } wire { block_bytes: 65536 }"),
               /*servers=*/2);
    ReplicaRig rig(options);
    ExpectAllOk(rig.Run(/*replicas=*/2));
    for (int server = 0; server < 2; ++server) {
      const ServerStatus status = rig.GetStatus(server);
      EXPECT_EQ(status.min_version(), status.max_version()) << mode;
      std::vector<std::set<int64_t>> last_steps(2);
      uint64_t applied = 0;
      for (const LedgerEntryStatus& entry : status.ledger()) {
        last_steps[entry.slot()].insert(entry.last_step());
        applied += entry.applied();
      }
      for (const std::set<int64_t>& steps : last_steps) {
        EXPECT_EQ(steps.size(), 1u) << mode << ": a block of a step is missing";
      }
      EXPECT_EQ(status.verdicts().acknowledged(),
                status.verdicts().accepted() + status.verdicts().scaled() +
                    status.verdicts().rejected() + status.verdicts().late());
      EXPECT_GT(applied, 0u);
    }
  }
}

}  // namespace
}  // namespace torchps
