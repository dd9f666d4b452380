#include "torchps/worker/cuda/cuda_link.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gpu.h"
#include "tests/worker/cuda/written_device.h"
#include "torch/cuda.h"
#include "torch/types.h"
#include "torch/utils.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns a link to WrittenDevice. It copies down on stream s1 and up on s2. Its waits for copies
// down use stream s3, and its waits for marks use s4.
std::unique_ptr<DeviceLink> LinkToWritten(int fail_at = -1) {
  WrittenDevice::Get()->Begin(fail_at);
  CudaLink::Options options;
  options.device = WrittenDevice::device();
  options.error_of = &TorchError;
  options.copy = [](const float* from, c10::Device, float* to, c10::Device, int64_t elements) {
    const auto stream = WrittenDevice::Get()->getStream(WrittenDevice::device()).id();
    WrittenDevice::Get()->Write("copy on s" + std::to_string(stream));
    std::copy_n(from, elements, to);
  };
  return *CudaLink::Create(std::move(options));
}

TEST(CudaLinkTest, CopiesDownWaitForTheirMarkAndEvent) {
  const auto link = LinkToWritten();
  std::vector<float> device = {1, 2};
  std::vector<float> host = {0, 0};
  const auto mark = link->AfterCompute();
  ASSERT_TRUE(mark.ok());
  ASSERT_TRUE(link->Down(*mark, device, absl::MakeSpan(host),
                         [](const absl::Status& status) {
                           WrittenDevice::Get()->Write(status.ok() ? "done" : "failed");
                         })
                  .ok());
  link->AwaitDowns();
  EXPECT_THAT(host, ElementsAre(1, 2));
  EXPECT_THAT(WrittenDevice::Get()->lines(),
              ElementsAre("record e1 on s0", "s1 after e1", "copy on s1", "record e2 on s1",
                          "s3 after e2", "wait for s3", "done"));
}

TEST(CudaLinkTest, TheCallerDoesNotWaitForAMark) {
  auto link = LinkToWritten();
  const auto mark = link->AfterCompute();
  ASSERT_TRUE(link->WhenReached(*mark, [](auto) { WrittenDevice::Get()->Write("reached"); }).ok());
  link.reset();
  EXPECT_THAT(WrittenDevice::Get()->lines(),
              ElementsAre("record e1 on s0", "s4 after e1", "wait for s4", "reached", "wait for s1",
                          "wait for s2"));
}

TEST(CudaLinkTest, ReportsCopiesDownDuringAMarkWait) {
  const auto link = LinkToWritten();
  std::vector<float> device = {1};
  std::vector<float> host = {0};
  absl::Notification is_copied;
  // Blocks the link's thread that waits for marks.
  ASSERT_TRUE(link->WhenReached(nullptr, [&](auto) { is_copied.WaitForNotification(); }).ok());
  ASSERT_TRUE(
      link->Down(nullptr, device, absl::MakeSpan(host), [&](auto) { is_copied.Notify(); }).ok());
  link->AwaitDowns();
  EXPECT_TRUE(is_copied.HasBeenNotified());
}

TEST(CudaLinkTest, KernelsInTheDownStreamFollowTheirMark) {
  const auto link = LinkToWritten();
  const auto give = [] {
    const auto stream = WrittenDevice::Get()->getStream(WrittenDevice::device()).id();
    WrittenDevice::Get()->Write("kernel on s" + std::to_string(stream));
    return absl::OkStatus();
  };
  const auto mark = link->AfterCompute();
  ASSERT_TRUE(link->InDowns(*mark, give).ok());
  EXPECT_THAT(WrittenDevice::Get()->lines(),
              ElementsAre("record e1 on s0", "s1 after e1", "kernel on s1"));
  const absl::Status error = absl::InternalError("the device refuses a kernel");
  EXPECT_EQ(link->InDowns(nullptr, [&error] { return error; }), error);
  EXPECT_EQ(link->InDowns(nullptr, give), error);
  EXPECT_EQ(link->AfterCompute().status(), error);
}

TEST(CudaLinkTest, ComputationWaitsForUploadedValues) {
  const auto link = LinkToWritten();
  std::vector<float> host = {1};
  std::vector<float> staging = {0};
  std::vector<float> values = {0};
  const auto computed = link->AfterCompute();
  ASSERT_TRUE(link->Up(*computed, host, absl::MakeSpan(staging)).ok());
  const auto up = link->AfterUps();
  ASSERT_TRUE(link->ComputeAfter(*up).ok());
  ASSERT_TRUE(link->CopyInCompute(staging, absl::MakeSpan(values)).ok());
  ASSERT_TRUE(link->AwaitUps().ok());
  EXPECT_THAT(values, ElementsAre(1));
  EXPECT_THAT(WrittenDevice::Get()->lines(),
              ElementsAre("record e1 on s0", "s2 after e1", "copy on s2", "record e2 on s2",
                          "s0 after e2", "copy on s0", "wait for s2"));
}

TEST(CudaLinkTest, TorchErrorsEndTheLinkWithAStatus) {
  for (int fail_at = 1; fail_at <= 6; ++fail_at) {
    const auto link = LinkToWritten(fail_at);
    std::vector<float> device = {1};
    std::vector<float> host = {0};
    std::vector<absl::Status> told;
    const auto mark = link->AfterCompute();
    const absl::Status down =
        link->Down(mark.ok() ? *mark : nullptr, device, absl::MakeSpan(host),
                   [&told](const absl::Status& status) { told.push_back(status); });
    link->AwaitDowns();
    EXPECT_EQ(told.size(), down.ok() ? 1u : 0u);
    const absl::Status error = down.ok() ? told[0] : down;
    EXPECT_EQ(error.code(), absl::StatusCode::kInternal) << "line " << fail_at;
    EXPECT_THAT(std::string(error.message()), HasSubstr("was refused"));
    EXPECT_EQ(link->AfterUps().status(), error);
    EXPECT_EQ(link->AwaitUps(), error);
  }
}

TEST(CudaLinkTest, TheThreadUsesTheLinksDevice) {
  const auto link = LinkToWritten();
  std::vector<float> device = {1};
  std::vector<float> host = {0};
  std::optional<c10::Device> used;
  ASSERT_TRUE(link->Down(nullptr, device, absl::MakeSpan(host),
                         [&used](const absl::Status&) { used = WrittenDevice::Get()->getDevice(); })
                  .ok());
  link->AwaitDowns();
  EXPECT_EQ(used, WrittenDevice::device());
  EXPECT_NE(WrittenDevice::Get()->getDevice(), WrittenDevice::device());
}

TEST(CudaLinkTest, CreateFailsWithoutADevice) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is one";
  CudaLink::Options options;
  options.error_of = &TorchError;
  EXPECT_EQ(CudaLink::Create(std::move(options)).status().code(), absl::StatusCode::kInternal);
}

class CudaLinkGpuTest : public GpuTest {};

TEST_F(CudaLinkGpuTest, CopiesDownFollowAndCopiesUpPrecedeComputation) {
  const torch::NoGradGuard no_grad;
  const auto on_gpu = torch::TensorOptions().device(torch::Device(torch::kCUDA, 0));
  constexpr int64_t kElements = 1 << 22;
  torch::Tensor device = torch::zeros({kElements}, on_gpu);
  torch::Tensor staging = torch::zeros({kElements}, on_gpu);
  const torch::Tensor host = torch::zeros({kElements}).pin_memory();
  const auto span = [](const torch::Tensor& tensor) {
    return absl::MakeSpan(tensor.data_ptr<float>(), tensor.numel());
  };
  CudaLink::Options options;
  options.error_of = &TorchError;
  auto link = CudaLink::Create(std::move(options));
  ASSERT_TRUE(link.ok()) << link.status();
  for (int i = 0; i < 1000; ++i) device.add_(1);
  const auto computed = (*link)->AfterCompute();
  ASSERT_TRUE(computed.ok());
  absl::Status down;
  ASSERT_TRUE((*link)
                  ->Down(*computed, span(device), span(host),
                         [&](const absl::Status& status) { down = status; })
                  .ok());
  (*link)->AwaitDowns();
  ASSERT_TRUE(down.ok()) << down;
  EXPECT_TRUE(host.eq(1000).all().item<bool>());

  host.fill_(7);
  ASSERT_TRUE((*link)->Up(nullptr, span(host), span(staging)).ok());
  ASSERT_TRUE((*link)->ComputeAfter(*(*link)->AfterUps()).ok());
  ASSERT_TRUE((*link)->CopyInCompute(span(staging), span(device)).ok());
  EXPECT_TRUE(device.eq(7).all().item<bool>());
}

}  // namespace
}  // namespace torchps
