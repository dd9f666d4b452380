// Tests the computing time that Learner measures if an observer delays a step while the device
// still computes.

#include "torchps/worker/learner.h"

#include <ATen/Parallel.h>
#include <torch/nn/modules/embedding.h>

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"
#include "tests/worker/device/fake_link.h"
#include "torch/nn/modules/linear.h"
#include "torch/utils.h"
#include "torchps/common/block_map.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/worker/device_factory.h"
#include "torchps/worker/feed/batch_loader.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/stages/stages.h"
#include "torchps/worker/task.h"
#include "torchps/worker/training_observer.h"

namespace torchps {
namespace {

constexpr absl::Duration kForward = absl::Seconds(3);

struct TimedNet : torch::nn::Module {
  explicit TimedNet(ManualClock* with) : clock(with) {}
  torch::Tensor forward(const torch::Tensor& input) {
    clock->Advance(kForward);
    return layer->forward(input);
  }
  ManualClock* const clock;
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(2, 2));
};

// Delays a step by five seconds, and then by two seconds more. The device finishes its work before,
// between or after these delays.
class Holder final : public Learner::Observer {
 public:
  enum class DeviceEnds { kBefore, kBetween, kAfter };

  Holder(ManualClock* clock, FakeLink* link, DeviceEnds ends)
      : clock_(clock), link_(link), ends_(ends) {}
  absl::Status BeforeGradient(absl::Duration) override { return absl::OkStatus(); }
  absl::Status BeforeBlocks() override {
    if (ends_ == DeviceEnds::kBefore) EndAll();
    clock_->Advance(absl::Seconds(5));
    if (ends_ == DeviceEnds::kBetween) EndAll();
    clock_->Advance(absl::Seconds(2));
    return absl::OkStatus();
  }
  void OnBlock(BlockId) override {}

 private:
  void EndAll() {
    while (link_->Step()) {
    }
  }

  ManualClock* const clock_;
  FakeLink* const link_;
  const DeviceEnds ends_;
};

enum class Device { kHost, kLinked, kWithoutLink };

// Returns the time of a step that counts neither as computing nor as reading samples.
absl::Duration NotComputing(Device device, const std::string& training,
                            Holder::DeviceEnds ends = Holder::DeviceEnds::kAfter) {
  at::set_num_threads(1);
  torch::manual_seed(1);
  ManualClock clock;
  DataSource data;
  data.train = std::make_shared<TensorDataset>(torch::randn({8, 2}), torch::randint(2, {8}));
  const Task task(std::make_shared<TimedNet>(&clock), CrossEntropy(), data, Callbacks());
  const Placement host(torch::kCPU);
  auto model =
      *FlatModel::Create(task.module(), device == Device::kHost ? host : host.ApartFromHost(),
                         [](const std::string&) { return 0; });
  const BlockMap map = *BlockMap::Create(model->layout(), /*block_bytes=*/8, /*servers=*/1);
  FakeLink* link = nullptr;
  if (device == Device::kLinked) {
    auto made = std::make_unique<FakeLink>(FakeLink::Options());
    link = made.get();
    EXPECT_TRUE(model->UseLink(std::move(made), map).ok());
  }
  Learner::Options options;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(training, &options.training));
  options.block_map = &map;
  options.clock = &clock;
  Learner learner(task, model.get(), options);
  std::vector<int64_t> samples(8);
  std::iota(samples.begin(), samples.end(), 0);
  StepWork step;
  step.samples = samples;
  step.epoch = 1;
  step.batch_size = 8;
  Holder holder(&clock, link, ends);
  const absl::Duration began = clock.Now();
  const absl::StatusOr<Learner::Gradient> gradient = learner.Compute(step, &holder);
  EXPECT_TRUE(gradient.ok()) << gradient.status();
  if (!gradient.ok()) return absl::InfiniteDuration();
  EXPECT_GE(gradient->compute_time, kForward);
  return clock.Now() - began - gradient->compute_time - gradient->data_time;
}

// The parameter is the training specification. With clip_norm, there is no outbox.
class LearnerTimesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LearnerTimesTest, ADelayCountsAsComputingWhileTheDeviceIsBusy) {
  const auto not_computing = [](Holder::DeviceEnds ends) {
    return NotComputing(Device::kLinked, GetParam(), ends);
  };
  EXPECT_EQ(not_computing(Holder::DeviceEnds::kBefore), absl::Seconds(7));
  EXPECT_EQ(not_computing(Holder::DeviceEnds::kBetween), absl::Seconds(2));
  EXPECT_EQ(not_computing(Holder::DeviceEnds::kAfter), absl::ZeroDuration());
}

TEST_P(LearnerTimesTest, WithoutALinkADelayDoesNotCountAsComputing) {
  EXPECT_EQ(NotComputing(Device::kHost, GetParam()), absl::Seconds(7));
  EXPECT_EQ(NotComputing(Device::kWithoutLink, GetParam()), absl::Seconds(7));
}

struct NobodyListens : Learner::Observer {
  absl::Status BeforeGradient(absl::Duration) override { return absl::OkStatus(); }
  void OnBlock(BlockId) override {}
};

struct Lines final : TrainingObserver {
  void Log(const std::string& line) override { said.push_back(line); }
  std::vector<std::string> said;
};

class NoStreams final : public GpuFactory {
  absl::StatusOr<std::unique_ptr<BatchUploader>> MakeUploader(torch::Device) const override {
    return absl::InternalError("making streams failed: no more streams");
  }
};

TEST(LearnerTest, ReportsMissingStreamsForBatchesOnce) {
  torch::manual_seed(1);
  ManualClock clock;
  DataSource data;
  data.train = std::make_shared<TensorDataset>(torch::randn({8, 2}), torch::randint(2, {8}));
  const Task task(std::make_shared<TimedNet>(&clock), CrossEntropy(), data, Callbacks());
  const auto model =
      *FlatModel::Create(task.module(), torch::kCPU, [](const std::string&) { return 0; });
  const BlockMap map = *BlockMap::Create(model->layout(), /*block_bytes=*/8, /*servers=*/1);
  Lines log;
  Learner::Options options;
  options.block_map = &map;
  options.clock = &clock;
  const NoStreams device;
  options.device_factory = &device;
  options.observer = &log;
  Learner learner(task, model.get(), options);
  EXPECT_THAT(log.said, ::testing::ElementsAre("batches are copied while cpu waits, not while it "
                                               "computes: making streams failed: no more streams"));
  const std::vector<int64_t> samples = {0, 1, 2, 3};
  StepWork step;
  step.samples = samples;
  step.epoch = 1;
  step.batch_size = 4;
  NobodyListens observer;
  const absl::StatusOr<Learner::Gradient> gradient = learner.Compute(step, &observer);
  EXPECT_TRUE(gradient.ok()) << gradient.status();
}

INSTANTIATE_TEST_SUITE_P(Training, LearnerTimesTest, ::testing::Values("", "clip_norm: 1"),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "BlockByBlock" : "Clipped");
                         });

struct NormedTable : torch::nn::Module {
  NormedTable() {
    const auto options = torch::nn::EmbeddingOptions(5, 2).max_norm(0.1);
    table = register_module("table", torch::nn::Embedding(options));
  }
  torch::Tensor forward(const torch::Tensor& input) { return table->forward(input).sum(1); }
  torch::nn::Embedding table{nullptr};
};

TEST(LearnerTest, RejectsAParameterThatForwardChangesInPlace) {
  torch::manual_seed(1);
  const ManualClock clock;
  DataSource data;
  data.train = std::make_shared<TensorDataset>(torch::randint(5, {8, 3}), torch::randint(2, {8}));
  const Task task(std::make_shared<NormedTable>(), CrossEntropy(), data);
  const auto model =
      *FlatModel::Create(task.module(), torch::kCPU, [](const std::string&) { return 0; });
  const BlockMap map = *BlockMap::Create(model->layout(), /*block_bytes=*/64, /*servers=*/1);
  Learner::Options options;
  options.block_map = &map;
  options.clock = &clock;
  Learner learner(task, model.get(), options);
  const std::vector<int64_t> samples = {0, 1, 2};
  StepWork step;
  step.samples = samples;
  step.batch_size = 3;
  NobodyListens nobody;
  const absl::Status status = learner.Compute(step, &nobody).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("'table.weight' in place"));
}

}  // namespace
}  // namespace torchps
