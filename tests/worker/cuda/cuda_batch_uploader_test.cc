#include "torchps/worker/cuda/cuda_batch_uploader.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ops/from_blob.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gpu.h"
#include "tests/worker/cuda/written_device.h"
#include "torch/types.h"
#include "torch/utils.h"
#include "torchps/data/dataset.h"
#include "torchps/worker/feed/batch_loader.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;

std::string CurrentStream() {
  return "s" + std::to_string(WrittenDevice::Get()->getStream(WrittenDevice::device()).id());
}

// Returns `tensor` as a tensor of WrittenDevice, which records its calls.
torch::Tensor ThereOf(const torch::Tensor& tensor) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .context(new torch::Tensor(tensor),
               [](void* kept) { delete static_cast<torch::Tensor*>(kept); })
      .options(tensor.options().device(WrittenDevice::device()))
      .target_device(WrittenDevice::device())
      .make_tensor();
}

// Returns an uploader that copies on stream s1. Its waits for earlier passes use stream s2.
std::unique_ptr<BatchUploader> LiftToWritten(int fail_at = -1) {
  WrittenDevice::Get()->Begin(fail_at);
  CudaBatchUploader::Options options;
  options.device = WrittenDevice::device();
  options.pin = [](const torch::Tensor& tensor) {
    WrittenDevice::Get()->Write("pin");
    return tensor.clone();
  };
  options.copy = [](const torch::Tensor& tensor, c10::Device device) {
    EXPECT_EQ(device, WrittenDevice::device());
    WrittenDevice::Get()->Write("copy on " + CurrentStream());
    return ThereOf(tensor);
  };
  return std::make_unique<CudaBatchUploader>(std::move(options));
}

Batch SmallBatch() { return {torch::ones({2, 3}), torch::tensor({0, 1})}; }

TEST(CudaBatchUploaderTest, ComputationWaitsForASeparateUploadStream) {
  const auto lift = LiftToWritten();
  auto rising = lift->Begin(lift->Stage(SmallBatch()));
  EXPECT_EQ(CurrentStream(), "s0");
  const Batch batch = lift->Arrive(std::move(rising));
  EXPECT_EQ(batch.input.device(), WrittenDevice::device());
  EXPECT_EQ(batch.target.device(), WrittenDevice::device());
  EXPECT_THAT(WrittenDevice::Get()->lines(),
              ElementsAre("pin", "pin", "copy on s1", "copy on s1", "record e1 on s1",
                          "s0 after e1", "keep memory for s0", "keep memory for s0"));
}

TEST(CudaBatchUploaderTest, UploadsEachDefinedTensorOfABatch) {
  const auto lift = LiftToWritten();
  Batch batch = SmallBatch();
  batch.target = torch::Tensor();
  batch.more_inputs = {torch::ones({2, 1})};
  batch.more_targets = {torch::ones({2, 1}), torch::Tensor()};
  const Batch there = lift->Arrive(lift->Begin(lift->Stage(std::move(batch))));
  EXPECT_FALSE(there.target.defined());
  EXPECT_EQ(there.more_inputs.at(0).device(), WrittenDevice::device());
  EXPECT_EQ(there.more_targets.at(0).device(), WrittenDevice::device());
  EXPECT_FALSE(there.more_targets.at(1).defined());
}

TEST(CudaBatchUploaderTest, DoesNotCopyATensorOnTheDevice) {
  const auto lift = LiftToWritten();
  Batch batch;
  batch.input = ThereOf(torch::ones({2}));
  lift->Arrive(lift->Begin(lift->Stage(std::move(batch))));
  EXPECT_THAT(WrittenDevice::Get()->lines(),
              ElementsAre("record e1 on s1", "s0 after e1", "keep memory for s0"));
}

TEST(CudaBatchUploaderTest, TheHostRunsAtMostTwoPassesAhead) {
  const auto lift = LiftToWritten();
  lift->EndPass();
  lift->EndPass();
  EXPECT_THAT(WrittenDevice::Get()->lines(), ElementsAre("record e1 on s0", "record e2 on s0"));
  WrittenDevice::Get()->Begin(/*fail_at=*/-1);
  lift->EndPass();
  EXPECT_THAT(WrittenDevice::Get()->lines(),
              ElementsAre("record e1 on s0", "s2 after e1", "wait for s2"));
}

TEST(CudaBatchUploaderTest, AnEnteringThreadUsesTheUploadersDevice) {
  const auto lift = LiftToWritten();
  std::thread([&lift] {
    EXPECT_NE(WrittenDevice::Get()->getDevice(), WrittenDevice::device());
    lift->EnterThread();
    EXPECT_EQ(WrittenDevice::Get()->getDevice(), WrittenDevice::device());
    lift->Begin(lift->Stage(SmallBatch()));
    EXPECT_EQ(WrittenDevice::Get()->getDevice(), WrittenDevice::device());
  }).join();
}

TEST(CudaBatchUploaderTest, ThrowsADeviceErrorAndRestoresTheStream) {
  for (int fail_at = 1; fail_at <= 6; ++fail_at) {
    const auto lift = LiftToWritten(fail_at);
    EXPECT_THROW(lift->Arrive(lift->Begin(lift->Stage(SmallBatch()))), c10::Error)
        << "line " << fail_at;
    EXPECT_EQ(CurrentStream(), "s0");
  }
}

class CudaBatchUploaderGpuTest : public GpuTest {};

// Each element of row i is i. Rows are large, so that copying them takes long.
class Rows final : public Dataset {
 public:
  explicit Rows(int64_t width) : width_(width) {}
  int64_t size() const override { return 1000; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const auto classes = torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()));
    return Batch{classes.to(torch::kFloat32)
                     .unsqueeze(1)
                     .expand({static_cast<int64_t>(indices.size()), width_})
                     .contiguous(),
                 classes};
  }

 private:
  const int64_t width_;
};

TEST_F(CudaBatchUploaderGpuTest, StagedBatchesArePinnedAndKeepTheirStrides) {
  CudaBatchUploader lift({});
  Batch batch = SmallBatch();
  batch.more_inputs = {torch::rand({2, 3, 4, 4}).contiguous(torch::MemoryFormat::ChannelsLast)};
  const torch::Tensor image = batch.more_inputs[0];
  const Batch staged = lift.Stage(std::move(batch));
  EXPECT_TRUE(staged.input.is_pinned());
  EXPECT_TRUE(staged.target.is_pinned());
  const Batch there = lift.Arrive(lift.Begin(staged));
  EXPECT_TRUE(there.input.is_cuda());
  EXPECT_TRUE(there.more_inputs[0].is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(there.more_inputs[0].cpu().equal(image));
}

// The computation lags far behind the host, and the uploader reuses memory again and again.
TEST_F(CudaBatchUploaderGpuTest, EachComputationReadsItsOwnBatch) {
  const torch::NoGradGuard no_grad;
  constexpr int64_t kRows = 16;
  constexpr int64_t kPasses = 60;
  for (const int threads : {0, 1, 3}) {
    SCOPED_TRACE("threads " + std::to_string(threads));
    CudaBatchUploader lift({});
    BatchLoader loader(std::make_shared<Rows>(1 << 18), nullptr, threads, &lift);
    const auto pass_of = [](int64_t pass) {
      BatchLoader::Pass made;
      for (int64_t row = 0; row < kRows; ++row) made.samples.push_back(pass * kRows + row);
      return made;
    };
    torch::Tensor busy = torch::rand({2048, 2048}, torch::kCUDA);
    std::vector<torch::Tensor> wrong;
    for (int64_t pass = 0; pass < kPasses; ++pass) {
      std::vector<BatchLoader::Pass> expected;
      for (int64_t next = pass; next < kPasses && expected.size() <= loader.ahead(); ++next) {
        expected.push_back(pass_of(next));
      }
      if (threads > 0) loader.Expect(std::move(expected));
      const absl::StatusOr<Batch> batch = loader.Take(pass_of(pass));
      ASSERT_TRUE(batch.ok()) << batch.status();
      for (int i = 0; i < 4; ++i) busy = torch::tanh(busy.mm(busy));
      const torch::Tensor wanted =
          torch::arange(pass * kRows, (pass + 1) * kRows, torch::kCUDA).unsqueeze(1);
      wrong.push_back(batch->input.ne(wanted).sum() + batch->target.unsqueeze(1).ne(wanted).sum());
      lift.EndPass();
    }
    EXPECT_EQ(torch::stack(wrong).sum().item<int64_t>(), 0);
  }
}

}  // namespace
}  // namespace torchps
