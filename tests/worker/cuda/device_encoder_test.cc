// Compares the encodings that a device sends through a link and an outbox with a CPU worker's
// pushes.

#include "torchps/worker/cuda/device_encoder.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/encoding_name.h"
#include "tests/testing/gpu.h"
#include "tests/worker/device/fake_link.h"
#include "tests/worker/kernels/host_launcher.h"
#include "torch/cuda.h"
#include "torch/types.h"
#include "torch/utils.h"
#include "torchps/client/error_feedback.h"
#include "torchps/common/hash.h"
#include "torchps/worker/cuda/cuda_link.h"
#include "torchps/worker/cuda/device_copies.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kTrained = 5000;  // blocks of 2100, 2100 and 800
constexpr int64_t kAveraged = 7;
constexpr int64_t kBlockElements = 2100;

BlockMap Map() {
  std::vector<Segment> segments(2);
  segments[0].name = "w";
  segments[0].shape = {kTrained};
  segments[1].name = "mean";
  segments[1].shape = {kAveraged};
  segments[1].averaged = true;
  return *BlockMap::Create(*ModelLayout::Create(segments), kBlockElements * 4, 1);
}

EncodingSpec Spec(EncodingSpec::Kind kind) {
  EncodingSpec spec;
  spec.set_kind(kind);
  spec.set_fraction(0.1);
  return spec;
}

// On the CPU, the kernels run on the host and copies finish late.
class DeviceEncoderTest
    : public ::testing::TestWithParam<std::tuple<torch::DeviceType, EncodingSpec::Kind>> {
 protected:
  void SetUp() override {
    if (on_gpu()) RequireGpu();
    if (IsSkipped() || HasFatalFailure()) return;
    const auto there = torch::device(torch::Device(std::get<0>(GetParam()), on_gpu() ? 0 : -1));
    gradients_ = torch::zeros({kTrained}, there);
    values_ = torch::zeros({kTrained + kAveraged}, there);
  }

  bool on_gpu() const { return std::get<0>(GetParam()) == torch::kCUDA; }
  EncodingSpec::Kind kind() const { return std::get<1>(GetParam()); }

  std::unique_ptr<BlockEncoder> MakeEncoder() {
    if (on_gpu()) {
      auto encoder = DeviceEncoder::Create(gradients_, map_, Spec(kind()));
      EXPECT_TRUE(encoder.ok()) << encoder.status();
      return encoder.ok() ? *std::move(encoder) : nullptr;
    }
    return std::make_unique<DeviceEncoder>(std::make_unique<GradientKernels>(MakeHostLauncher()),
                                           gradients_, map_, Spec(kind()), [] { return nullptr; });
  }

  std::unique_ptr<DeviceLink> MakeLink() {
    if (on_gpu()) {
      CudaLink::Options options;
      options.error_of = &TorchError;
      return *CudaLink::Create(std::move(options));
    }
    return std::make_unique<FakeLink>(
        FakeLink::Options{/*seed=*/1, /*own_thread=*/true, /*fail_at=*/-1});
  }

  // Creates an outbox. If `looks`, the outbox checks gradients before it encodes them.
  EncodedOutbox* MakeOutbox(bool looks) {
    DeviceCopies::Options options;
    options.link = MakeLink();
    options.block_map = &map_;
    options.values = values_;
    options.gradients = gradients_;
    options.pinned = on_gpu();
    copies_ = std::make_unique<DeviceCopies>(std::move(options));
    std::unique_ptr<BlockEncoder> encoder = MakeEncoder();
    if (encoder == nullptr) return nullptr;
    encoder_ = static_cast<const DeviceEncoder*>(encoder.get());
    return copies_->MakeEncodedOutbox(std::move(encoder), looks);
  }

  void ExpectTheSameResidual(const ErrorFeedback& host) const {
    const torch::Tensor found = encoder_->residual().to(torch::kCPU);
    EXPECT_EQ(
        std::memcmp(found.data_ptr<float>(), host.residual().data(), kTrained * sizeof(float)), 0);
  }

  const BlockMap map_ = Map();
  torch::Tensor gradients_, values_;
  std::unique_ptr<DeviceCopies> copies_;
  const DeviceEncoder* encoder_ = nullptr;
};

TEST_P(DeviceEncoderTest, MatchesTheHostIfSomeBlocksAreTakenBack) {
  EncodedOutbox* const outbox = MakeOutbox(/*looks=*/true);
  ASSERT_NE(outbox, nullptr);
  ErrorFeedback host(map_, Spec(kind()));
  uint64_t seed = 20261127;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  for (Step step = 1; step <= 8; ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    std::vector<float> gradient(kTrained);
    for (float& element : gradient) {
      element = static_cast<float>(UnitDouble(SplitMix64(seed))) - 0.5f;
    }
    // In some steps, part of the last block is absent, or the first block is not finite.
    ElementRuns absent;
    if (step % 3 == 0) absent = {{4200, 4210}, {4500, 4700}};
    for (const ElementRun& run : absent) {
      std::fill(gradient.begin() + run.begin, gradient.begin() + run.end, 0.0f);
    }
    const bool finite = step % 4 != 0;
    if (!finite) gradient[2099] = std::numeric_limits<float>::quiet_NaN();

    outbox->BeginStep();
    gradients_.copy_(torch::tensor(gradient));
    values_.fill_(static_cast<double>(step));
    if (step % 2 == 0) outbox->BlockFinal(0);
    outbox->Open([](BlockId) {});
    if (step % 2 == 0) outbox->BlockFinal(1);
    ASSERT_TRUE(outbox->Finish(absent).ok());
    EXPECT_THAT(outbox->averaged(), ::testing::Each(static_cast<float>(step)));

    for (const BlockRange& block : map_.blocks()) {
      if (block.averaged) continue;
      EXPECT_EQ(outbox->IsFinite(block.id), finite || block.id != 0);
      if (!outbox->IsFinite(block.id)) continue;
      const auto elements = absl::MakeConstSpan(gradient).subspan(block.offset, block.length);
      const absl::Span<const uint8_t> expected = host.Encode(
          block.id, step, elements, RunsWithin(absent, block.offset, block.offset + block.length));
      EXPECT_THAT(outbox->GetBytes(block.id), ElementsAreArray(expected)) << "block " << block.id;
    }
    ExpectTheSameResidual(host);
    for (const BlockRange& block : map_.blocks()) {
      if (UniformBelow(seed, 3) != 0) continue;
      host.TakeBack(block.id, step);
      outbox->TakeBack(block.id);
    }
  }
}

TEST_P(DeviceEncoderTest, MatchesTheHostWithoutAFiniteCheck) {
  EncodedOutbox* const outbox = MakeOutbox(/*looks=*/false);
  ASSERT_NE(outbox, nullptr);
  ErrorFeedback host(map_, Spec(kind()));
  for (Step step = 1; step <= 2; ++step) {
    std::vector<float> gradient(kTrained);
    for (int64_t i = 0; i < kTrained; ++i) {
      gradient[i] = static_cast<float>(i % 17) * 0.123f - static_cast<float>(step);
    }
    outbox->BeginStep();
    gradients_.copy_(torch::tensor(gradient));
    outbox->Open([](BlockId) {});
    ASSERT_TRUE(outbox->Finish({}).ok());
    for (const BlockRange& block : map_.blocks()) {
      if (block.averaged) continue;
      EXPECT_TRUE(outbox->IsFinite(block.id));
      const auto elements = absl::MakeConstSpan(gradient).subspan(block.offset, block.length);
      EXPECT_THAT(outbox->GetBytes(block.id),
                  ElementsAreArray(host.Encode(block.id, step, elements)));
    }
  }
  ExpectTheSameResidual(host);
}

INSTANTIATE_TEST_SUITE_P(
    Devices, DeviceEncoderTest,
    ::testing::Combine(EachDevice(), ::testing::Values(EncodingSpec::BFLOAT16, EncodingSpec::INT8,
                                                       EncodingSpec::TOP_K)),
    [](const ::testing::TestParamInfo<DeviceEncoderTest::ParamType>& info) {
      return DeviceName({std::get<0>(info.param), 0}) + EncodingName({std::get<1>(info.param), 0});
    });

TEST(DeviceEncoderCreateTest, ErrorExplainsAMissingGpu) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "a GPU is here";
  // A CPU tensor suffices here, because Create() looks for a GPU before it uses the tensor.
  const absl::Status status =
      DeviceEncoder::Create(torch::zeros({kTrained}), Map(), Spec(EncodingSpec::INT8)).status();
  EXPECT_THAT(std::string(status.message()),
              ::testing::AnyOf(HasSubstr("does not tell the driver's handle of a stream"),
                               HasSubstr("no NVIDIA driver is to be found"),
                               HasSubstr("using the GPU failed")));
}

}  // namespace
}  // namespace torchps
