#include <array>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gpu.h"
#include "tests/worker/device/fake_link.h"
#include "tests/worker/kernels/host_launcher.h"
#include "torch/cuda.h"
#include "torch/types.h"
#include "torchps/worker/cuda/cuda_link.h"
#include "torchps/worker/cuda/device_copies.h"
#include "torchps/worker/cuda/device_scan.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTrained = 5000;  // blocks of 2100, 2100 and 800
constexpr int64_t kAveraged = 7;

BlockMap Map() {
  std::vector<Segment> segments(2);
  segments[0].name = "w";
  segments[0].shape = {kTrained};
  segments[1].name = "mean";
  segments[1].shape = {kAveraged};
  segments[1].averaged = true;
  return *BlockMap::Create(*ModelLayout::Create(segments), /*block_bytes=*/2100 * 4, /*servers=*/1);
}

// On the CPU, the kernels run on the host and copies finish late.
class CudaFiniteCheckTest : public DeviceTestBase {
 protected:
  void SetUp() override {
    DeviceTestBase::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    gradients_ = torch::zeros({kTrained}, torch::device(device()));
    DeviceCopies::Options options;
    options.link = MakeLink();
    options.block_map = &map_;
    options.values = torch::zeros({kTrained + kAveraged}, torch::device(device()));
    options.gradients = gradients_;
    options.pinned = device().is_cuda();
    copies_ = std::make_unique<DeviceCopies>(std::move(options));
    outbox_ = copies_->MakeOutbox(MakeFiniteCheck());
    ASSERT_NE(outbox_, nullptr);
  }

  std::unique_ptr<FiniteCheck> MakeFiniteCheck() {
    if (device().is_cpu()) {
      return std::make_unique<CudaFiniteCheck>(
          std::make_unique<GradientKernels>(MakeHostLauncher()), gradients_, map_,
          [] { return nullptr; });
    }
    absl::StatusOr<std::unique_ptr<FiniteCheck>> look = CudaFiniteCheck::Create(gradients_, map_);
    EXPECT_TRUE(look.ok()) << look.status();
    return look.ok() ? *std::move(look) : nullptr;
  }

  std::unique_ptr<DeviceLink> MakeLink() const {
    if (device().is_cuda()) {
      CudaLink::Options options;
      options.error_of = &TorchError;
      return *CudaLink::Create(std::move(options));
    }
    return std::make_unique<FakeLink>(
        FakeLink::Options{/*seed=*/1, /*own_thread=*/true, /*fail_at=*/-1});
  }

  const BlockMap map_ = Map();
  torch::Tensor gradients_;
  std::unique_ptr<DeviceCopies> copies_;
  GradientOutbox* outbox_ = nullptr;
};

// The check of a step must see that step's gradients. So it must run after they are written, and
// before NaNs overwrite them.
TEST_P(CudaFiniteCheckTest, FindsTheFiniteBlocksOfEachStep) {
  constexpr std::array<float, 3> kBad = {std::numeric_limits<float>::infinity(),
                                         -std::numeric_limits<float>::infinity(),
                                         std::numeric_limits<float>::quiet_NaN()};
  const int steps = device().is_cpu() ? 9 : 300;
  for (int step = 0; step < steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const BlockRange& bad = map_.blocks()[step % 3];
    const int64_t at = step % 2 == 0 ? bad.offset : bad.offset + bad.length - 1;
    outbox_->BeginStep();
    gradients_.fill_(3e38);
    outbox_->Open([](BlockId) {});
    if (step % 4 != 3) gradients_[at] = kBad[step / 3 % 3];
    outbox_->BlockFinal(1);
    outbox_->BlockFinal(0);
    ASSERT_TRUE(outbox_->Finish().ok());
    gradients_.fill_(std::numeric_limits<float>::quiet_NaN());
    for (BlockId block = 0; block < 3; ++block) {
      EXPECT_EQ(FiniteCheck::IsFinite(outbox_->verdicts(), block), step % 4 == 3 || block != bad.id)
          << "block " << block;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, CudaFiniteCheckTest, EachDevice(), DeviceName);

TEST(CudaFiniteCheckCreateTest, ErrorExplainsAMissingGpu) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "a GPU is here";
  // A CPU tensor suffices here, because Create() looks for a GPU before it uses the tensor.
  const absl::Status status = CudaFiniteCheck::Create(torch::zeros({kTrained}), Map()).status();
  EXPECT_THAT(std::string(status.message()),
              ::testing::AnyOf(HasSubstr("does not tell the driver's handle of a stream"),
                               HasSubstr("no NVIDIA driver is to be found"),
                               HasSubstr("using the GPU failed")));
}

}  // namespace
}  // namespace torchps
