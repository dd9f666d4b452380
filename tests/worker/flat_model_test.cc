#include "torchps/worker/flat_model.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gpu.h"
#include "tests/worker/device/fake_link.h"
#include "torch/nn/functional/loss.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/conv.h"
#include "torch/nn/modules/linear.h"
#include "torchps/common/block_map.h"
#include "torchps/transport/push_segments.h"
#include "torchps/worker/module_tensors.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(3, 2))),
        norm(register_module("norm", torch::nn::BatchNorm1d(2))) {}
  torch::Tensor forward(const torch::Tensor& input) { return norm->forward(first->forward(input)); }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
};

int GroupOfName(const std::string& name) { return name == "first.bias" ? 1 : -1; }

absl::StatusOr<std::unique_ptr<FlatModel>> Lay(torch::nn::Module& module,
                                               torch::Device device = torch::kCPU) {
  return FlatModel::Create(module, device, &GroupOfName);
}

std::vector<std::string> Names(const ModelLayout& layout) {
  std::vector<std::string> names;
  for (const Segment& segment : layout.segments()) names.push_back(segment.name);
  return names;
}

TEST(FlatModelTest, OnTheCpuTheModuleSharesTheModelsMemory) {
  Net net;
  const auto model = Lay(net);
  ASSERT_TRUE(model.ok()) << model.status();
  net.first->bias.data()[1] = 43;
  EXPECT_EQ((*model)->values()[7], 43);
}

TEST(FlatModelTest, ForAnOutboxADevicesModelGetsTwoSharedBuffers) {
  Net net;
  const auto model = FlatModel::Create(net, Placement(torch::kCPU).ApartFromHost(), &GroupOfName,
                                       FlatModel::Shared::kForOutbox);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->not_shared(), absl::OkStatus());
  PushSegment& segment = *(*model)->push_segment();
  EXPECT_EQ(segment.buffers(), 2);
  EXPECT_EQ(segment.GetBuffer((*model)->gradients()), 0);
}

TEST(FlatModelTest, WithoutAnOutboxOneBufferIsShared) {
  for (const auto& [placement, shared] :
       {std::pair(Placement(torch::kCPU).ApartFromHost(), FlatModel::Shared::kGradients),
        std::pair(Placement(torch::kCPU), FlatModel::Shared::kForOutbox)}) {
    Net net;
    const auto model = FlatModel::Create(net, placement, &GroupOfName, shared);
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_EQ((*model)->not_shared(), absl::OkStatus());
    EXPECT_EQ((*model)->push_segment()->buffers(), 1);
    EXPECT_EQ((*model)->push_segment()->GetBuffer((*model)->gradients()), 0);
  }
}

TEST(FlatModelTest, MakesNoOutboxIfOneBufferIsShared) {
  Net net;
  const auto model = FlatModel::Create(net, Placement(torch::kCPU).ApartFromHost(), &GroupOfName,
                                       FlatModel::Shared::kGradients);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto map = BlockMap::Create((*model)->layout(), /*block_bytes=*/16, /*servers=*/1);
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_TRUE((*model)->UseLink(std::make_unique<FakeLink>(FakeLink::Options()), *map).ok());
  EXPECT_EQ((*model)->MakeOutbox(), nullptr);
  EXPECT_EQ((*model)->push_segment()->GetBuffer((*model)->gradients()), 0);
}

using FlatModelGpuTest = GpuTest;

TEST_F(FlatModelGpuTest, MemoryThatServersReadIsPinned) {
  Net net;
  const auto model = FlatModel::Create(net, torch::Device(torch::kCUDA, 0), &GroupOfName,
                                       FlatModel::Shared::kForOutbox);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->not_shared(), absl::OkStatus());
  const absl::Span<float> buffer = (*model)->push_segment()->buffer(1);
  EXPECT_TRUE(torch::from_blob(buffer.data(), {static_cast<int64_t>(buffer.size())}).is_pinned());
}

// Properties on each device. On the CPU, ToDevice() and ToHost() do not copy.
class FlatModelOnADeviceTest : public DeviceTestBase {};

TEST_P(FlatModelOnADeviceTest, KeepsTheValuesAndAcceptsNewValues) {
  Net net;
  const torch::Tensor before = net.first->weight.detach().clone();
  const auto model = Lay(net, device());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(net.first->weight.device().type(), GetParam());
  EXPECT_TRUE(torch::equal(net.first->weight.detach().cpu(), before));
  EXPECT_EQ((*model)->values()[4], before[1][1].item<float>());
  (*model)->values()[4] = 42;
  ASSERT_TRUE((*model)->ToDevice().ok());
  EXPECT_EQ(net.first->weight[1][1].item<float>(), 42);
}

TEST_P(FlatModelOnADeviceTest, BackwardAddsIntoTheFlatGradient) {
  Net net;
  const auto model = Lay(net, device());
  ASSERT_TRUE(model.ok()) << model.status();
  const torch::Tensor input = torch::ones({1, 3}).to(device());
  for (int pass = 1; pass <= 2; ++pass) {
    net.first->forward(input).sum().backward();
    ASSERT_TRUE((*model)->ToHost().ok());
    EXPECT_THAT((*model)->gradients().subspan(0, 8), ::testing::Each(pass));
  }
  EXPECT_THAT((*model)->gradients().subspan(8), ::testing::Each(0)) << "not part of this loss";
  (*model)->ZeroGradients();
  ASSERT_TRUE((*model)->ToHost().ok());
  EXPECT_THAT((*model)->gradients(), ::testing::Each(0));
  EXPECT_TRUE((*model)->CheckViews().ok());
}

TEST_P(FlatModelOnADeviceTest, AveragedElementsShowRunningStatistics) {
  Net net;
  const auto model = Lay(net, device());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->averaged(), ElementsAre(0, 0, 1, 1));
  net.forward((torch::randn({8, 3}) * 3 + 5).to(device()));
  ASSERT_TRUE((*model)->ToHost().ok());
  EXPECT_THAT((*model)->averaged(), ::testing::Not(ElementsAre(0, 0, 1, 1)));
  EXPECT_EQ((*model)->averaged()[0], net.norm->running_mean[0].item<float>());
  EXPECT_TRUE((*model)->CheckViews().ok());
}

TEST_P(FlatModelOnADeviceTest, LoadsNextValuesWithoutChangingCurrentValues) {
  Net net;
  const auto model = Lay(net, device());
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<float> before((*model)->values().begin(), (*model)->values().end());
  const absl::Span<float> next = (*model)->next_values();
  ASSERT_EQ(next.size(), before.size());
  std::fill(next.begin(), next.end(), 2.0f);
  EXPECT_THAT((*model)->values(), ::testing::ElementsAreArray(before));
  EXPECT_NE(net.first->weight[0][0].item<float>(), 2.0f);

  ASSERT_TRUE((*model)->UseNextValues().ok());
  EXPECT_EQ((*model)->values().data(), next.data());
  EXPECT_EQ(net.first->weight[0][0].item<float>(), 2.0f);
  EXPECT_EQ(net.norm->running_mean[0].item<float>(), 2.0f);
  EXPECT_EQ((*model)->averaged()[0], 2.0f);
  EXPECT_TRUE((*model)->CheckViews().ok()) << (*model)->CheckViews();
  EXPECT_THAT((*model)->next_values(), ::testing::ElementsAreArray(before));
  (*model)->ZeroGradients();
  net.forward(torch::randn({8, 3}).to(device())).sum().backward();
  EXPECT_TRUE((*model)->CheckViews().ok()) << "gradients kept their memory";
}

TEST_P(FlatModelOnADeviceTest, ComputesTheSameGradientAsThePlainModule) {
  torch::manual_seed(3);
  Net plain;
  plain.to(device());
  torch::manual_seed(3);
  Net flat;
  const auto model = Lay(flat, device());
  ASSERT_TRUE(model.ok()) << model.status();
  const torch::Tensor input = torch::randn({4, 3}).to(device());
  plain.forward(input).pow(2).sum().backward();
  flat.forward(input).pow(2).sum().backward();
  EXPECT_TRUE(torch::equal(plain.first->weight.grad(), flat.first->weight.grad()));
  EXPECT_TRUE(torch::equal(plain.norm->bias.grad(), flat.norm->bias.grad()));
}

INSTANTIATE_TEST_SUITE_P(Devices, FlatModelOnADeviceTest, EachDevice(), DeviceName);

struct Half : torch::nn::Module {
  explicit Half(torch::Tensor shared) { weight = register_parameter("weight", shared); }
  torch::Tensor weight;
};
struct Tied : torch::nn::Module {
  Tied() {
    const torch::Tensor shared = torch::ones({2});
    in = register_module("in", std::make_shared<Half>(shared));
    out = register_module("out", std::make_shared<Half>(in->weight));
  }
  std::shared_ptr<Half> in;
  std::shared_ptr<Half> out;
};

TEST(FlatModelTest, TiedParametersAreOneSegmentWithOneGradient) {
  Tied net;
  const auto model = Lay(net);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Names((*model)->layout()), ElementsAre("in.weight"));
  (net.in->weight.sum() + 2 * net.out->weight.sum()).backward();
  EXPECT_THAT((*model)->gradients(), ElementsAre(3, 3));
}

struct ConvNet : torch::nn::Module {
  ConvNet()
      : first(register_module("first", torch::nn::Conv2d(3, 8, 3))),
        point(register_module("point", torch::nn::Conv2d(8, 4, 1))) {}
  torch::Tensor forward(const torch::Tensor& input) {
    hidden = first->forward(input).relu();
    return point->forward(hidden);
  }
  torch::nn::Conv2d first;
  torch::nn::Conv2d point;
  torch::Tensor hidden;
};

void MakeChannelsLast(ConvNet* net) {
  for (torch::Tensor& weight : std::vector<torch::Tensor>{net->first->weight, net->point->weight}) {
    // contiguous() would not convert a one-pixel filter, because it counts as contiguous with any
    // strides.
    const auto there = torch::empty(weight.sizes(), torch::MemoryFormat::ChannelsLast);
    weight.set_data(there.copy_(weight.detach()));
  }
}

TEST(FlatModelTest, AChannelsLastNetLearnsTheSameAsAContiguousOne) {
  constexpr float kRate = 0.1f;
  torch::manual_seed(5);
  ConvNet plain;
  torch::manual_seed(5);
  ConvNet net;
  MakeChannelsLast(&net);
  ASSERT_FALSE(net.first->weight.is_contiguous());
  const auto layout = LayoutOfModule(plain, &GroupOfName);
  const auto model = Lay(net);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->channels_last_name(), "first.weight");
  EXPECT_EQ((*model)->layout().fingerprint(), layout->fingerprint());

  const torch::Tensor input = torch::randn({4, 3, 8, 8});
  for (int step = 0; step < 5; ++step) {
    // Servers and files hold the elements in the order of a contiguous tensor.
    const torch::Tensor sent = plain.first->weight.detach().contiguous().view(-1);
    for (int64_t i = 0; i < sent.numel(); ++i) {
      ASSERT_NEAR((*model)->values()[i], sent[i].item<float>(), 1e-5) << "step " << step;
    }
    plain.zero_grad();
    plain.forward(input).pow(2).mean().backward();
    (*model)->ZeroGradients();
    net.forward(input.contiguous(torch::MemoryFormat::ChannelsLast)).pow(2).mean().backward();
    EXPECT_EQ(net.hidden.suggest_memory_format(), torch::MemoryFormat::ChannelsLast)
        << "activations have the input's memory format";
    ASSERT_TRUE((*model)->CheckViews().ok()) << (*model)->CheckViews();

    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : plain.parameters()) parameter -= kRate * parameter.grad();
    for (size_t i = 0; i < (*model)->gradients().size(); ++i) {
      (*model)->values()[i] -= kRate * (*model)->gradients()[i];
    }
  }
  for (const auto& item : plain.named_parameters()) {
    EXPECT_TRUE(torch::allclose(net.named_parameters()[item.key()], item.value(), 0, 1e-5))
        << item.key();
  }
}

TEST(FlatModelTest, ReportsOnlyTrainedChannelsLastParameters) {
  ConvNet net;
  const auto plain = Lay(net);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ((*plain)->channels_last_name(), "");
  ConvNet converted;
  MakeChannelsLast(&converted);
  converted.first->weight.set_requires_grad(false);
  const auto model = Lay(converted);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->channels_last_name(), "point.weight");
}

TEST(FlatModelTest, RefusesAMissingDevice) {
  Net net;
  const auto model =
      FlatModel::Create(net, torch::Device("cuda:99"), [](const std::string&) { return -1; });
  EXPECT_TRUE(absl::IsInvalidArgument(model.status())) << model.status();
}

TEST(FlatModelTest, SurvivesZeroGradThatRemovesGradients) {
  Net net;
  const auto model = Lay(net);
  ASSERT_TRUE(model.ok()) << model.status();
  net.zero_grad(/*set_to_none=*/true);
  (*model)->ZeroGradients();
  net.first->forward(torch::ones({1, 3})).sum().backward();
  EXPECT_TRUE((*model)->CheckViews().ok());
  EXPECT_EQ((*model)->gradients()[0], 1);
}

TEST(FlatModelTest, DetectsAReplacedGradient) {
  Net net;
  const auto model = Lay(net);
  ASSERT_TRUE(model.ok()) << model.status();
  net.zero_grad(/*set_to_none=*/true);
  net.first->forward(torch::ones({1, 3})).sum().backward();
  const absl::Status status = (*model)->CheckViews();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("gradient of 'first.weight'"));
}

TEST(FlatModelTest, DetectsAModuleConvertedToAnotherType) {
  Net net;
  const auto model = Lay(net);
  ASSERT_TRUE(model.ok()) << model.status();
  net.norm->to(torch::kFloat64);
  const absl::Status status = (*model)->CheckViews();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("'norm.weight'"));
}

TEST(FlatModelTest, UseNextValuesRefusesAModuleOfAnotherType) {
  Net net;
  const auto model = Lay(net);
  ASSERT_TRUE(model.ok()) << model.status();
  (*model)->next_values();
  net.norm->to(torch::kFloat64);
  const absl::Status status = (*model)->UseNextValues();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("'norm.weight'"));
}

TEST(FlatModelTest, RejectsAParameterTrainedOnlyAfterTheJobStarted) {
  Net net;
  net.first->bias.set_requires_grad(false);
  const auto model = Lay(net);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->CheckModule(net).ok());
  // The module may add parameters without a gradient, and may freeze parameters later.
  net.register_parameter("table", torch::ones({2}), /*requires_grad=*/false);
  net.first->weight.set_requires_grad(false);
  EXPECT_TRUE((*model)->CheckModule(net).ok());
  net.first->weight.set_requires_grad(true);
  EXPECT_TRUE((*model)->CheckModule(net).ok());
  net.first->bias.set_requires_grad(true);
  const absl::Status status = (*model)->CheckModule(net);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("parameter 'first.bias' was registered or"));
}

TEST(FlatModelTest, RejectsAFloatBufferRegisteredAfterTheJobStarted) {
  Net net;
  const auto model = Lay(net);
  ASSERT_TRUE(model.ok()) << model.status();
  // Buffers of other types are constants of each worker, so the module may get them later.
  net.register_buffer("mask", torch::tensor({true, false}));
  net.register_buffer("steps", torch::tensor(int64_t{0}));
  net.register_buffer("half", torch::ones({1}, torch::kFloat16));
  EXPECT_TRUE((*model)->CheckModule(net).ok());
  net.norm->register_buffer("scale", torch::ones({1}));
  const absl::Status status = (*model)->CheckModule(net);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("float buffer 'norm.scale' was registered after the job had started"));
}

}  // namespace
}  // namespace torchps
