#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/cuda/fake_device.h"
#include "torch/nn/modules/linear.h"
#include "torch/types.h"
#include "torchps/common/model_layout.h"
#include "torchps/worker/device.h"
#include "torchps/worker/slot/worker_options.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const torch::Device kCpu = torch::kCPU;

ModelLayout TwoStages() {
  std::vector<Segment> segments(2);
  segments[0].name = "0.weight";
  segments[0].shape = {2};
  segments[1].name = "1.weight";
  segments[1].shape = {3};
  return *ModelLayout::Create(std::move(segments));
}

std::vector<std::string> GetDevices(const std::vector<ReplicaMember>& members) {
  std::vector<std::string> devices;
  for (const ReplicaMember& member : members) devices.push_back(member.device());
  return devices;
}

TEST(SlotPlaceTest, EverythingIsOnOneDeviceByDefault) {
  WorkerOptions options;
  const Placement placement = MakePlacement(options, /*slot=*/-1);
  EXPECT_THAT(placement.devices(), ElementsAre(kCpu));
  EXPECT_TRUE(placement.on_host());
  EXPECT_THAT(GetMembers(options, TwoStages(), "host"), IsEmpty());
}

TEST(SlotPlaceTest, WithAFakeLinkTheCpuIsApartFromTheHost) {
  WorkerOptions options;
  FakeDevice device;
  device.link = absl::UnavailableError("none is made here");
  options.device_factory = &device;
  EXPECT_FALSE(MakePlacement(options, /*slot=*/0).on_host());
}

TEST(SlotPlaceTest, EachReplicaIsAMemberWithItsDevice) {
  WorkerOptions options;
  options.further_devices = {kCpu, kCpu};
  EXPECT_THAT(MakePlacement(options, /*slot=*/0).devices(), ElementsAre(kCpu));
  EXPECT_THAT(GetDevices(GetMembers(options, TwoStages(), "host")),
              ElementsAre("cpu", "cpu", "cpu"));
}

TEST(SlotPlaceTest, EachStageHasItsOwnDevice) {
  WorkerOptions options;
  options.stage_devices = {kCpu, kCpu};
  EXPECT_TRUE(MakePlacement(options, /*slot=*/0).has_stages());
  EXPECT_THAT(GetDevices(GetMembers(options, TwoStages(), "host")), ElementsAre("cpu", "cpu"));
}

TEST(SlotPlaceTest, RefusesStagesOfAnUncutModuleAndMissingDevices) {
  const Stages stages({torch::nn::Linear(2, 2), torch::nn::Linear(2, 2)});
  const torch::nn::Linear whole(2, 2);
  WorkerOptions options;
  options.stage_devices = {kCpu, kCpu};
  EXPECT_EQ(CheckPlacement(options, *stages), absl::OkStatus());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckPlacement(options, *whole)));

  const torch::Device missing("cuda:99");
  ASSERT_FALSE(CheckDevice(missing).ok());
  options.stage_devices = {kCpu, missing};
  EXPECT_EQ(CheckPlacement(options, *stages), CheckDevice(missing));
  WorkerOptions replicas;
  replicas.further_devices = {missing};
  EXPECT_EQ(CheckPlacement(replicas, *whole), CheckDevice(missing));
}

TEST(SlotPlaceTest, RefusesADeviceWithoutThePrecision) {
  WorkerOptions options;
  options.job.mutable_training()->set_precision(TrainingSpec::FLOAT16);
  const absl::Status status = CheckPlacement(options, *torch::nn::Linear(2, 2));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 'cpu'"));
}

}  // namespace
}  // namespace torchps
