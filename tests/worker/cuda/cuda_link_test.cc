#include "worker/cuda/cuda_link.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "common/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gpu.h"
#include "torch/cuda.h"
#include "torch/types.h"
#include "torch/utils.h"
#include "worker/torch_error.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kType = c10::DeviceType::PrivateUse1;

// A kind of device for torch that only writes down what its streams are given, as
// "record e1 on s0". Its events are numbered from 1; stream 0 is the one that computes.
class WrittenDevice final : public c10::impl::DeviceGuardImplInterface {
 public:
  // The one that torch knows.
  static WrittenDevice* Get() {
    static auto* const device = [] {
      auto* const made = new WrittenDevice;
      const c10::impl::DeviceGuardImplRegistrar registrar(kType, made);
      return made;
    }();
    return device;
  }

  void Begin(int fail_at) {
    MutexLock lock(&mutex_);
    lines_.clear();
    fail_at_ = fail_at;
    streams_ = events_ = 0;
  }
  std::vector<std::string> lines() const {
    MutexLock lock(&mutex_);
    return lines_;
  }
  void Write(const std::string& line) const {
    MutexLock lock(&mutex_);
    lines_.push_back(line);
    TORCH_CHECK(fail_at_ != static_cast<int>(lines_.size()), line, " was refused");
  }
  // The second one. A new thread's is the first, as with CUDA.
  static c10::Device device() { return c10::Device(kType, 1); }

  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device to) const override {
    return std::exchange(current_device(), to);
  }
  c10::Device getDevice() const override { return current_device(); }
  void setDevice(c10::Device to) const override { current_device() = to; }
  void uncheckedSetDevice(c10::Device to) const noexcept override { current_device() = to; }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  c10::Stream getStream(c10::Device) const noexcept override { return StreamOf(current()); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    MutexLock lock(&mutex_);
    return StreamOf(++streams_);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const c10::Stream before = StreamOf(current());
    current() = stream.id();
    return before;
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    {
      MutexLock lock(&mutex_);
      *event = reinterpret_cast<void*>(static_cast<intptr_t>(++events_));
    }
    Write("record " + Event(*event) + " on " + Name(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    Write(Name(stream) + " after " + Event(event));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Write("wait for " + Name(stream));
  }

 private:
  static c10::Device& current_device() {
    static thread_local c10::Device device(kType, 0);
    return device;
  }
  static c10::StreamId& current() {
    static thread_local c10::StreamId stream = 0;
    return stream;
  }
  static c10::Stream StreamOf(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device(), id);
  }
  static std::string Name(const c10::Stream& stream) { return "s" + std::to_string(stream.id()); }
  static std::string Event(void* event) {
    return "e" + std::to_string(reinterpret_cast<intptr_t>(event));
  }

  mutable Mutex mutex_;
  mutable std::vector<std::string> lines_;
  mutable c10::StreamId streams_ = 0;
  mutable intptr_t events_ = 0;
  int fail_at_ = -1;
};

// s1 copies down, s2 up; s3 waits.
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

TEST(CudaLinkTest, ACopyDownWaitsForItsMarkOnAStreamOfItsOwnAndIsDoneWhenItsEventHasCome) {
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

TEST(CudaLinkTest, ACopyDownOfNothingOnlyTellsThatItsTurnHasCome) {
  const auto link = LinkToWritten();
  ASSERT_TRUE(link->Down(nullptr, {}, {}, [](auto) { WrittenDevice::Get()->Write("done"); }).ok());
  link->AwaitDowns();
  EXPECT_THAT(WrittenDevice::Get()->lines(),
              ElementsAre("record e1 on s1", "s3 after e1", "wait for s3", "done"));
}

TEST(CudaLinkTest, WhatGoesUpIsTakenOverOnTheStreamThatComputesBehindIt) {
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

TEST(CudaLinkTest, AnErrorOfTorchIsAStatusThatEndsEverythingElse) {
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

TEST(CudaLinkTest, ItsThreadUsesItsDevice) {
  const auto link = LinkToWritten();
  std::vector<float> device = {1};
  std::vector<float> host = {0};
  absl::optional<c10::Device> used;
  ASSERT_TRUE(link->Down(nullptr, device, absl::MakeSpan(host),
                         [&used](const absl::Status&) { used = WrittenDevice::Get()->getDevice(); })
                  .ok());
  link->AwaitDowns();
  EXPECT_EQ(used, WrittenDevice::device());
  EXPECT_NE(WrittenDevice::Get()->getDevice(), WrittenDevice::device());
}

TEST(CudaLinkTest, ADeviceThatIsNotThereIsAStatus) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is one";
  CudaLink::Options options;
  options.error_of = &TorchError;
  EXPECT_EQ(CudaLink::Create(std::move(options)).status().code(), absl::StatusCode::kInternal);
}

class CudaLinkGpuTest : public GpuTest {};

TEST_F(CudaLinkGpuTest, CopiesGoDownBehindWhatIsComputedAndUpBeforeIt) {
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
