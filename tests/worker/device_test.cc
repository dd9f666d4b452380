#include "torchps/worker/device.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gpu.h"
#include "torch/cuda.h"
#include "torch/types.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::string& name) {
  const absl::StatusOr<torch::Device> device = FindDevice(name);
  EXPECT_TRUE(absl::IsInvalidArgument(device.status())) << name << ": " << device.status();
  return std::string(device.status().message());
}

TEST(DeviceTest, TheCpuIsAlwaysAvailable) {
  const absl::StatusOr<torch::Device> device = FindDevice("cpu");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE(device->is_cpu());
  EXPECT_TRUE(UseDevice(*device).ok());
}

TEST(DeviceTest, RefusesAnUnknownNameAndListsExpectedNames) {
  for (const std::string name : {"", "gpu", "cpu:1", "CUDA", "cuda:", "cuda:-1", "cuda:+1",
                                 "cuda: 1", "cuda:1x", "cuda0", "cuda:99999999999999999999"}) {
    EXPECT_THAT(Refusal(name), HasSubstr("expected cpu, cuda or cuda:INDEX")) << name;
  }
}

TEST(DeviceTest, RefusesAGpuIndexThatTorchCannotStore) {
  // torch stores an index in eight bits. There 256 would be 0, which is cuda:0, and 255 would be
  // -1, which is cuda.
  EXPECT_THAT(Refusal("cuda:256"), HasSubstr("cuda"));
  EXPECT_THAT(Refusal("cuda:255"), HasSubstr("cuda"));
}

TEST(DeviceTest, RefusesADeviceThatIsNeitherCpuNorGpu) {
  EXPECT_TRUE(absl::IsInvalidArgument(CheckDevice(torch::kMeta)));
  EXPECT_TRUE(absl::IsInvalidArgument(UseDevice(torch::kMeta)));
}

TEST(DeviceTest, ErrorExplainsAMissingGpu) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "a GPU is here";
  EXPECT_THAT(Refusal("cuda"),
              ::testing::AnyOf(HasSubstr("built without CUDA"), HasSubstr("CUDA sees no GPU")));
  EXPECT_TRUE(absl::IsInvalidArgument(UseDevice(torch::kCUDA)));
}

std::string ListRefusal(const std::string& text) {
  const absl::StatusOr<DeviceList> devices = FindDevices(text);
  EXPECT_TRUE(absl::IsInvalidArgument(devices.status())) << text << ": " << devices.status();
  return std::string(devices.status().message());
}

TEST(DeviceTest, ParsesAListOfDevicesInOrder) {
  EXPECT_EQ(*FindDevices("cpu"), DeviceList{torch::kCPU});
  const absl::StatusOr<DeviceList> three = FindDevices("cpu,cpu,cpu");
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(*three, DeviceList(3, torch::kCPU));
  EXPECT_EQ(DeviceNames(*three), "cpu,cpu,cpu");
}

TEST(DeviceTest, AutoSelectsVisibleGpusOrTheCpu) {
  const auto gpus = static_cast<size_t>(torch::cuda::device_count());
  const absl::StatusOr<DeviceList> found = FindDevices("auto");
  ASSERT_TRUE(found.ok()) << found.status();
  if (gpus == 0) {
    EXPECT_EQ(*found, DeviceList{torch::kCPU});
    EXPECT_THAT(ListRefusal("cuda:all"), HasSubstr("device 'cuda' cannot be used"));
  } else {
    EXPECT_EQ(found->size(), gpus);
    EXPECT_EQ(found->back().index(), static_cast<int>(gpus) - 1);
    EXPECT_EQ(*FindDevices("cuda:all"), *found);
  }
}

TEST(DeviceTest, RefusesAnInvalidListAndNamesTheWrongDevice) {
  EXPECT_EQ(ListRefusal("cpu,gpu"),
            "device 'gpu' is not known; expected auto, cpu, cuda, cuda:INDEX, cuda:all, or "
            "several, as cuda:0,cuda:1");
  EXPECT_THAT(ListRefusal("cpu,"), HasSubstr("device '' is not known"));
  EXPECT_THAT(ListRefusal(""), HasSubstr("device '' is not known"));
  EXPECT_THAT(ListRefusal("cpu,auto"), HasSubstr("device 'auto' is not known"));
  EXPECT_THAT(ListRefusal("cuda,cuda"), HasSubstr("'cuda' of 'cuda,cuda' has no index"));
  EXPECT_THAT(ListRefusal("cpu,cuda:99"), HasSubstr("cuda"));
  std::string many = "cpu";
  for (int i = 0; i < 64; ++i) many += ",cpu";
  EXPECT_EQ(ListRefusal(many), "65 devices; expected at most 64");
}

TEST(DeviceTest, EachSlotOfAMachineUsesOneGpu) {
  EXPECT_EQ(GpuOfSlot(/*slot=*/0, /*gpus=*/4), 0);
  EXPECT_EQ(GpuOfSlot(3, 4), 3);
  EXPECT_EQ(GpuOfSlot(4, 4), 0) << "with more workers than GPUs, the numbering wraps around";
  EXPECT_EQ(GpuOfSlot(9, 4), 1) << "the second machine's second worker, of four";
  EXPECT_EQ(GpuOfSlot(5, 1), 0);
}

TEST(DeviceTest, AnUnknownSlotUsesTheOnlyGpu) {
  EXPECT_EQ(GpuOfSlot(-1, 1), 0);
  EXPECT_EQ(GpuOfSlot(-1, 2), -1);
}

TEST(DeviceTest, EachProcessOfASlotUsesOneGpu) {
  const std::vector<std::string> here = {"127.0.0.1:7100", "127.0.0.1:7101", "127.0.0.1:7102"};
  std::vector<int> gpus;
  for (const SlotId slot : {0, 1}) {
    for (const int stage : {0, 1, 2}) {
      gpus.push_back(GpuOfSlot(NumberOfMember(slot, stage, here), /*gpus=*/8));
    }
  }
  EXPECT_EQ(gpus, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(GpuOfSlot(NumberOfMember(1, 1, here), 4), 0)
      << "with more processes than GPUs, the numbering wraps around";
}

TEST(DeviceTest, ProcessesAreNumberedOnEachMachineSeparately) {
  // Each worker runs on two machines: alpha runs the first two stages, and beta runs the third.
  const std::vector<std::string> apart = {"alpha:7100", "alpha:7101", "beta:7100"};
  EXPECT_EQ(NumberOfMember(0, 0, apart), 0);
  EXPECT_EQ(NumberOfMember(0, 1, apart), 1);
  EXPECT_EQ(NumberOfMember(1, 0, apart), 2);
  EXPECT_EQ(NumberOfMember(1, 1, apart), 3);
  EXPECT_EQ(NumberOfMember(0, 2, apart), 0) << "the first on beta";
  EXPECT_EQ(NumberOfMember(1, 2, apart), 1) << "the second there";
  const std::vector<std::string> sixth = {"[fd00::1]:7100", "[fd00::2]:7100", "[fd00::1]:7101"};
  EXPECT_EQ(NumberOfMember(2, 2, sixth), 5);
}

TEST(DeviceTest, WithoutStagesAProcessHasTheNumberOfItsSlot) {
  EXPECT_EQ(NumberOfMember(3, -1, {}), 3);
  EXPECT_EQ(NumberOfMember(-1, 1, {"a:1", "a:2"}), -1);
  EXPECT_EQ(NumberOfMember(3, 2, {"a:1", "a:2"}), 3) << "an invalid stage is refused later";
}

TEST(DeviceTest, AnExplicitDeviceIgnoresTheSlot) {
  EXPECT_EQ(DeviceOfSlot(torch::kCPU, 3), torch::Device(torch::kCPU));
  EXPECT_EQ(DeviceOfSlot(torch::Device("cuda:1"), 2), torch::Device("cuda:1"));
}

TEST(DeviceTest, FindsEachVisibleDevice) {
  const std::vector<std::string> seen = SeenDevices();
  EXPECT_EQ(seen.front(), "cpu");
  EXPECT_EQ(seen.size(), 1 + torch::cuda::device_count());
  for (const std::string& name : seen) EXPECT_EQ(FindDevice(name)->str(), name);
}

using DeviceOnAGpuTest = GpuTest;

TEST_F(DeviceOnAGpuTest, ASlotsGpuBecomesItsThreadsCurrentDevice) {
  const absl::StatusOr<torch::Device> any = FindDevice("cuda");
  ASSERT_TRUE(any.ok()) << any.status();
  EXPECT_FALSE(any->has_index());
  EXPECT_EQ(DeviceOfSlot(*any, 0).str(), "cuda:0");
  const auto count = static_cast<int>(torch::cuda::device_count());
  const torch::Device last = DeviceOfSlot(*any, 2 * count - 1);
  EXPECT_EQ(last.str(), "cuda:" + std::to_string(count - 1));
  std::thread([&] {
    EXPECT_TRUE(UseDevice(last).ok());
    EXPECT_EQ(torch::zeros({1}, torch::kCUDA).device(), last);
  }).join();
}

}  // namespace
}  // namespace torchps
