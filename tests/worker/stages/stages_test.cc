// Compares a module in stages with the same undivided module. Both must compute the same.

#include "torchps/worker/stages/stages.h"

#include <ATen/Parallel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "torchps/common/mutex.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/learner.h"
#include "torchps/worker/models/transformer.h"
#include "torchps/worker/models/vision_models.h"
#include "torchps/worker/module_tensors.h"
#include "torchps/worker/stages/slot_members.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kSeed = 5;
constexpr double kTolerance = 1e-5;
const torch::Device kOtherDevice(torch::kCUDA, 0);  // only named, never used

Placement OnCpus(int stages) {
  return Placement(std::vector<torch::Device>(stages, torch::Device(torch::kCPU)));
}

int NoGroup(const std::string&) { return -1; }

// These two modules have layers of 784, 512, 256 and 10 units, and equal initial values.
std::shared_ptr<Mlp> WholeMlp() {
  torch::manual_seed(kSeed);
  return std::make_shared<Mlp>(784, std::vector<int64_t>{512, 256}, 10);
}
Stages CutMlp() {
  torch::manual_seed(kSeed);
  using torch::nn::Linear;
  using torch::nn::ReLU;
  using torch::nn::Sequential;
  // The layers are created in the Mlp's order, so that they draw the same initial values.
  const Sequential first(Linear(784, 512), ReLU());
  const Sequential second(Linear(512, 256), ReLU());
  return Stages({first, second, Linear(256, 10)});
}
DataSource Digits() {
  torch::manual_seed(kSeed + 1);
  DataSource data;
  data.train = std::make_shared<TensorDataset>(torch::randn({64, 784}), torch::randint(10, {64}));
  return data;
}

std::shared_ptr<Transformer> WholeTransformer() {
  torch::manual_seed(kSeed);
  Transformer::Options options;
  options.layers = 3;
  options.width = 32;
  options.context = 16;
  return std::make_shared<Transformer>(options);
}
DataSource Bytes() {
  torch::manual_seed(kSeed + 1);
  DataSource data;
  data.train =
      std::make_shared<TensorDataset>(torch::randint(256, {64, 16}), torch::randint(256, {64, 16}));
  return data;
}

class Listener final : public Learner::Observer {
 public:
  absl::Status BeforeGradient(absl::Duration) override {
    ++heard;
    return answer;
  }
  void OnBlock(BlockId block) override {
    const MutexLock lock(&mutex);
    told.push_back(block);
    if (on_block != nullptr) on_block(block);
  }

  int heard = 0;
  absl::Status answer;
  std::vector<BlockId> told;
  std::function<void(BlockId block)> on_block;

 private:
  Mutex mutex;
};

struct Setting {
  std::string training;
  int micro_batches = 0;
  size_t samples = 24;
  int64_t batch_size = 24;
};

// Trains a module without servers. Each step ends with plain SGD.
class Worker {
 public:
  Worker(const Task& task, const Placement& placement, const Setting& setting = {})
      : setting_(setting) {
    at::set_num_threads(1);
    auto made = FlatModel::Create(task.module(), placement, &NoGroup);
    EXPECT_TRUE(made.ok()) << made.status();
    model = *std::move(made);
    map = *BlockMap::Create(model->layout(), /*block_bytes=*/16 << 10, /*servers=*/1);
    Learner::Options options;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(setting.training, &options.training));
    options.block_map = &map;
    options.clock = &clock_;
    options.micro_batches = setting.micro_batches;
    learner_ = std::make_unique<Learner>(task, model.get(), options);
  }

  absl::StatusOr<Learner::Gradient> Compute() {
    std::vector<int64_t> samples(setting_.samples);
    std::iota(samples.begin(), samples.end(), static_cast<int64_t>(steps_ % 5));
    StepWork step;
    step.samples = samples;
    step.number = steps_;
    step.epoch = 1;
    step.batch_size = setting_.batch_size;
    return learner_->Compute(step, &listener);
  }

  // Computes a gradient and applies it.
  Learner::Gradient Train() {
    const absl::StatusOr<Learner::Gradient> gradient = Compute();
    EXPECT_TRUE(gradient.ok()) << gradient.status();
    if (!gradient.ok()) return {};
    const absl::Span<float> values = model->values();
    for (size_t i = 0; i < model->gradients().size(); ++i) {
      values[i] -= 0.05f * model->gradients()[i];
    }
    EXPECT_TRUE(model->ToDevice().ok());
    ++steps_;
    return *gradient;
  }

  torch::Tensor Gradients() {
    return torch::tensor(std::vector<float>(model->gradients().begin(), model->gradients().end()));
  }

  std::unique_ptr<FlatModel> model;
  BlockMap map;
  Listener listener;

 private:
  const Setting setting_;
  const SteadyClock clock_;
  std::unique_ptr<Learner> learner_;
  int64_t steps_ = 0;
};

double Difference(const torch::Tensor& ours, const torch::Tensor& theirs) {
  return ((ours - theirs).norm() / theirs.norm()).item<double>();
}

// Trains both for some steps and compares the gradients of each step.
void ExpectSameSteps(Worker& cut, Worker& whole) {
  for (int step = 0; step < 6; ++step) {
    const Learner::Gradient ours = cut.Train();
    const Learner::Gradient theirs = whole.Train();
    EXPECT_LE(Difference(cut.Gradients(), whole.Gradients()), kTolerance) << "step " << step;
    EXPECT_NEAR(ours.loss_sum, theirs.loss_sum, 1e-4 * theirs.loss_sum);
    EXPECT_EQ(ours.samples, theirs.samples);
    EXPECT_EQ(ours.absent, theirs.absent);
    EXPECT_EQ(cut.listener.heard, step + 1);
  }
}

Task MlpTask(const Stages& net) { return Task(net, CrossEntropy(), Digits()); }

TEST(StagesTest, StagesAreNumberedSubmodulesAndForwardChainsThem) {
  Stages cut = CutMlp();
  std::vector<std::string> names;
  for (const auto& item : cut->named_parameters()) names.push_back(item.key());
  EXPECT_THAT(
      names, ElementsAre("0.0.weight", "0.0.bias", "1.0.weight", "1.0.bias", "2.weight", "2.bias"));
  const torch::Tensor input = torch::randn({3, 784});
  EXPECT_TRUE(torch::equal(cut->forward(input), WholeMlp()->forward(input)));
  EXPECT_THROW(StagesImpl(std::vector<ModelStage>{}), c10::Error);
}

TEST(StagesTest, AnMlpInThreeStagesMatchesTheWhole) {
  for (const int micro_batches : {0, 1, 2, 3, 7, 24, 1000}) {
    SCOPED_TRACE(absl::StrCat(micro_batches, " micro-batches"));
    Setting setting;
    setting.micro_batches = micro_batches;
    Worker cut(MlpTask(CutMlp()), OnCpus(3), setting);
    Worker whole(Task(WholeMlp(), CrossEntropy(), Digits()), torch::kCPU);
    ExpectSameSteps(cut, whole);
    if (micro_batches == 1) {
      EXPECT_TRUE(torch::equal(cut.Gradients(), whole.Gradients()))
          << "one micro-batch adds in the same order";
    }
  }
}

TEST(StagesTest, AccumulatedAndClippedPassesMatchTheWhole) {
  // Three passes. The last pass contains fewer samples than micro-batches.
  const Setting setting{"clip_norm: 0.05", /*micro_batches=*/5, /*samples=*/23, /*batch_size=*/10};
  Worker cut(MlpTask(CutMlp()), OnCpus(3), setting);
  Worker whole(Task(WholeMlp(), CrossEntropy(), Digits()), torch::kCPU, setting);
  ExpectSameSteps(cut, whole);
  EXPECT_NEAR(cut.Gradients().norm().item<double>(), 0.05, 1e-5) << "nothing was clipped";
}

TEST(StagesTest, AStagedTransformerMatchesTheWhole) {
  for (const int stages : {2, 3}) {
    SCOPED_TRACE(absl::StrCat(stages, " stages"));
    Worker cut(Task(WholeTransformer()->InStages(stages), NextByteCrossEntropy(), Bytes()),
               OnCpus(stages));
    Worker whole(Task(WholeTransformer(), NextByteCrossEntropy(), Bytes()), torch::kCPU);
    ASSERT_EQ(cut.model->layout().trained_size(), whole.model->layout().trained_size());
    ExpectSameSteps(cut, whole);
    const std::vector<BlockId>& told = cut.listener.told;
    EXPECT_THAT(std::set<BlockId>(told.begin(), told.end()), SizeIs(cut.map.blocks().size()))
        << "only the first stage adds to the embedding, also for the last stage";
  }
}

// As on GPUs, each stage's tensors are apart from the host's vectors.
TEST(StagesTest, StagesApartFromTheHostComputeTheSame) {
  const auto net = [] {
    torch::manual_seed(kSeed);
    const torch::nn::Sequential first(torch::nn::Linear(784, 20), torch::nn::BatchNorm1d(20));
    const torch::nn::Sequential second(torch::nn::BatchNorm1d(20), torch::nn::ReLU());
    return Stages({first, second, torch::nn::Linear(20, 10)});
  };
  Setting setting;
  setting.micro_batches = 1;  // gives batch norm the same batches
  Worker cut(MlpTask(net()), OnCpus(3).ApartFromHost(), setting);
  Worker whole(MlpTask(net()), torch::kCPU, setting);
  EXPECT_FALSE(cut.model->on_host());
  EXPECT_FALSE(cut.model->has_one_vector());
  for (int step = 0; step < 4; ++step) {
    cut.Train();
    whole.Train();
    EXPECT_TRUE(torch::equal(cut.Gradients(), whole.Gradients())) << "step " << step;
    EXPECT_THAT(cut.model->averaged(), ::testing::ElementsAreArray(whole.model->averaged()));
  }
  EXPECT_NE(cut.model->averaged()[0], 0) << "the statistics did not change";

  // Uses the second vector of values, which a prefetched pull fills.
  const absl::Span<float> next = cut.model->next_values();
  std::iota(next.begin(), next.end(), 0.0f);
  ASSERT_TRUE(cut.model->UseNextValues().ok());
  for (size_t i = 0; i < cut.model->parameters().size(); ++i) {
    EXPECT_EQ(cut.model->parameters()[i].flatten()[0].item<float>(),
              static_cast<float>(cut.model->layout().segments()[i].offset));
  }
  EXPECT_TRUE(cut.model->CheckViews().ok()) << cut.model->CheckViews();
}

TEST(StagesTest, AReportedBlockHasItsFinalGradient) {
  Worker cut(MlpTask(CutMlp()), OnCpus(3));
  cut.Train();
  EXPECT_THAT(cut.listener.told, IsEmpty()) << "the first pass only records";
  std::vector<float> when_told(cut.model->gradients().size());
  cut.listener.on_block = [&](BlockId id) {
    const BlockRange& block = cut.map.blocks()[id];
    const auto now = cut.model->gradients().subspan(block.offset, block.length);
    std::copy(now.begin(), now.end(), when_told.begin() + block.offset);
  };
  cut.Train();
  EXPECT_THAT(cut.listener.told, SizeIs(cut.map.blocks().size()));
  EXPECT_THAT(when_told, ::testing::ElementsAreArray(cut.model->gradients()));
}

// Linear layer with an unused parameter.
struct Spare : torch::nn::Module {
  Spare() {
    linear = register_module("linear", torch::nn::Linear(784, 10));
    spare = register_parameter("spare", torch::ones({5}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return linear->forward(x); }
  torch::nn::Linear linear{nullptr};
  torch::Tensor spare;
};

TEST(StagesTest, SkipsUnreachedParametersAndFrozenStages) {
  const auto net = [] {
    torch::manual_seed(kSeed);
    const torch::nn::Linear frozen(784, 784);
    for (torch::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    return Stages({frozen, std::make_shared<Spare>(), torch::nn::Linear(10, 10)});
  };
  Worker cut(MlpTask(net()), OnCpus(3));
  Worker whole(MlpTask(net()), torch::kCPU);
  ExpectSameSteps(cut, whole);
  EXPECT_THAT(cut.Train().absent, ElementsAre(ElementRun{0, 5}));
}

// Throws in the third pass after `armed` is set: in its backward pass if `backward`, else in its
// forward pass.
struct Trap : torch::nn::Module {
  Trap(int64_t inputs, int64_t outputs) {
    linear = register_module("linear", torch::nn::Linear(inputs, outputs));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const bool now = armed && ++passes == 3;
    if (now && !backward) throw std::runtime_error("a trap");
    const torch::Tensor y = linear->forward(x);
    if (now) {
      y.register_hook([](const torch::Tensor& gradient) -> torch::Tensor {
        if (gradient.defined()) throw std::runtime_error("a trap");
        return gradient;
      });
    }
    return y;
  }
  torch::nn::Linear linear{nullptr};
  bool armed = false;
  bool backward = false;
  int passes = 0;
};

TEST(StagesTest, AThrowingStageEndsOnlyItsStep) {
  torch::manual_seed(kSeed);
  const std::vector<std::shared_ptr<Trap>> traps = {std::make_shared<Trap>(784, 12),
                                                    std::make_shared<Trap>(12, 11),
                                                    std::make_shared<Trap>(11, 10)};
  Worker cut(MlpTask(Stages({traps[0], traps[1], traps[2]})), OnCpus(3));
  cut.Train();
  ASSERT_TRUE(cut.Compute().ok());
  const torch::Tensor expected = cut.Gradients();
  for (size_t stage = 0; stage < traps.size(); ++stage) {
    for (const bool backward : {false, true}) {
      SCOPED_TRACE(absl::StrCat("stage ", stage, backward ? ", backward" : ", forward"));
      traps[stage]->armed = true;
      traps[stage]->backward = backward;
      const absl::Status failed = cut.Compute().status();
      EXPECT_EQ(failed, absl::InternalError(
                            absl::StrCat("stage ", stage, " of a training step failed: a trap")));
      traps[stage]->armed = false;
      traps[stage]->passes = 0;
      const absl::Status repeated = cut.Compute().status();
      ASSERT_TRUE(repeated.ok()) << repeated;
      EXPECT_LE(Difference(cut.Gradients(), expected), kTolerance);
    }
  }
}

TEST(StagesTest, ObserverAndObjectiveErrorsEndTheStep) {
  Worker cut(MlpTask(CutMlp()), OnCpus(3));
  cut.listener.answer = absl::CancelledError("too late");
  EXPECT_EQ(cut.Compute().status(), cut.listener.answer);
  cut.listener.answer = absl::OkStatus();
  EXPECT_TRUE(cut.Compute().ok());

  const Objective rows([](const Pass& pass) { return pass.output().sum(1); });
  Worker odd(Task(CutMlp(), rows, Digits()), OnCpus(3));
  const absl::Status refused = odd.Compute().status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the objective's loss has"));
}

std::string Refusal(const torch::nn::Module& module, std::vector<torch::Device> devices) {
  const absl::Status refused = Placement(std::move(devices)).Check(module);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  return std::string(refused.message());
}

TEST(PlacementTest, SeveralDevicesNeedAsManyStages) {
  const torch::Device cpu = torch::kCPU;
  Stages cut = CutMlp();
  EXPECT_TRUE(OnCpus(3).Check(*cut).ok());
  EXPECT_TRUE(Placement(cpu).Check(*cut).ok());
  EXPECT_TRUE(Placement(cpu).Check(*WholeMlp()).ok());
  EXPECT_EQ(Refusal(*cut, {cpu, cpu}),
            "there are 2 devices for a module of 3 stages; name one device, or one for each stage");
  EXPECT_EQ(Refusal(*WholeMlp(), {cpu, cpu}),
            "there are 2 devices for a module that is not cut into stages; name one device, or "
            "make the module a torchps::Stages");
  cut->register_buffer("scale", torch::ones({1}));
  EXPECT_THAT(Refusal(*cut, {cpu, cpu, cpu}), HasSubstr("outside its stages"));
}

TEST(PlacementTest, StagesWithATiedTensorNeedOneDevice) {
  const auto tied = std::make_shared<torch::nn::LinearImpl>(4, 4);
  const Stages cut({tied, torch::nn::ReLU(), tied});
  const torch::Device cpu = torch::kCPU;
  EXPECT_TRUE(Placement({cpu, kOtherDevice, cpu}).Check(*cut).ok());
  EXPECT_EQ(Refusal(*cut, {cpu, cpu, kOtherDevice}),
            "'0.weight' and '2.weight' are the same tensor, but their stages are on cpu and "
            "cuda:0; put both stages on one device, or cut the module elsewhere");
}

TEST(PlacementTest, EachStageIsOneRunOfTheLayout) {
  const Stages cut({torch::nn::Sequential(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2)),
                    torch::nn::ReLU(), torch::nn::Linear(2, 1)});
  const absl::StatusOr<ModelLayout> layout = LayoutOfModule(*cut, &NoGroup);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const Placement placement({torch::kCPU, torch::kCPU, kOtherDevice});
  EXPECT_FALSE(placement.on_host());
  const std::vector<StagePart> parts = placement.GetParts(*layout);
  ASSERT_THAT(parts, SizeIs(3));
  EXPECT_EQ(parts[0].trained, (ElementRun{0, 12}));
  EXPECT_EQ(parts[0].averaged, (ElementRun{15, 19}));
  EXPECT_EQ(parts[1].trained, (ElementRun{0, 0}));
  EXPECT_EQ(parts[2].trained, (ElementRun{12, 15}));
  EXPECT_EQ(parts[2].device, kOtherDevice);

  const std::vector<ReplicaMember> members = StageMembers(placement, *layout, "here");
  ASSERT_THAT(members, SizeIs(3));
  EXPECT_EQ(members[0].host(), "here");
  EXPECT_EQ(members[0].stage(), 0);
  EXPECT_EQ(members[0].parameters(), 12);
  EXPECT_EQ(members[0].model_bytes(), 2u * 4 * (2 * 12 + 4)) << "with the host's buffers";
  EXPECT_EQ(members[2].device(), "cuda:0");
  EXPECT_FALSE(members[2].own_process());
  EXPECT_EQ(members[2].stage(), 2);
  EXPECT_EQ(StageMembers(OnCpus(3), *layout, "here")[2].model_bytes(), 4u * 2 * 3);
  EXPECT_THAT(StageMembers(torch::kCPU, *layout, "here"), IsEmpty());
}

}  // namespace
}  // namespace torchps
