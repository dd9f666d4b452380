#include "torchps/worker/device.h"

#include <algorithm>
#include <exception>

#include "ATen/Context.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "torch/cuda.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

constexpr char kExpected[] = "expected cpu, cuda or cuda:INDEX";
constexpr char kExpectedList[] =
    "expected auto, cpu, cuda, cuda:INDEX, cuda:all, or several, as cuda:0,cuda:1";
// A longer list is probably a typo.
constexpr size_t kMaxDevices = 64;

absl::Status CheckGpu(int64_t index) {
  if (!at::globalContext().hasCUDART()) {
    return absl::InvalidArgumentError(
        "device 'cuda' cannot be used: this program is built without CUDA; build it with "
        "--config=cuda");
  }
  const auto count = static_cast<int64_t>(torch::cuda::device_count());
  if (count == 0) {
    return absl::InvalidArgumentError(
        "device 'cuda' cannot be used: CUDA sees no GPU here (is there one, with a driver that is "
        "new enough, and does CUDA_VISIBLE_DEVICES show it?)");
  }
  if (index >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("device 'cuda:", index, "' is not there; GPUs seen here: ", count));
  }
  return absl::OkStatus();
}

// Parses an index, which may be far larger than any GPU's.
bool ReadIndex(absl::string_view digits, int64_t* index) {
  return !digits.empty() && std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(digits, index);
}

torch::Device Gpu(int64_t index) { return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)}; }

absl::StatusOr<torch::Device> Find(const std::string& name, const char* expected) {
  if (name == "cpu") return torch::Device(torch::kCPU);
  absl::string_view digits = name;
  int64_t index = 0;
  if (name != "cuda" && !(absl::ConsumePrefix(&digits, "cuda:") && ReadIndex(digits, &index))) {
    return absl::InvalidArgumentError(absl::StrCat("device '", name, "' is not known; ", expected));
  }
  if (absl::Status status = CheckGpu(index); !status.ok()) return status;
  return name == "cuda" ? torch::Device(torch::kCUDA) : Gpu(index);
}

DeviceList AllGpus() {
  DeviceList gpus;
  for (int64_t index = 0; CheckGpu(index).ok(); ++index) gpus.push_back(Gpu(index));
  return gpus;
}

}  // namespace

absl::StatusOr<torch::Device> FindDevice(const std::string& name) { return Find(name, kExpected); }

absl::StatusOr<DeviceList> FindDevices(const std::string& text) {
  if (text == "cuda:all") {
    if (absl::Status status = CheckGpu(0); !status.ok()) return status;
    return AllGpus();
  }
  if (text == "auto") {
    DeviceList gpus = AllGpus();
    return gpus.empty() ? DeviceList{torch::kCPU} : gpus;
  }
  const std::vector<std::string> names = absl::StrSplit(text, ',');
  if (names.size() > kMaxDevices) {
    return absl::InvalidArgumentError(
        absl::StrCat(names.size(), " devices; expected at most ", kMaxDevices));
  }
  DeviceList devices;
  for (const std::string& name : names) {
    if (names.size() > 1 && name == "cuda") {
      return absl::InvalidArgumentError(
          absl::StrCat("device 'cuda' of '", text,
                       "' has no index; expected an index for each GPU, as in cuda:0"));
    }
    const absl::StatusOr<torch::Device> device = Find(name, kExpectedList);
    if (!device.ok()) return device.status();
    devices.push_back(*device);
  }
  return devices;
}

std::string DeviceNames(const DeviceList& devices) {
  return absl::StrJoin(devices, ",", [](std::string* text, const torch::Device& device) {
    absl::StrAppend(text, device.str());
  });
}

int GpuOfSlot(SlotId slot, int gpus) {
  if (gpus == 1) return 0;
  return slot < 0 ? -1 : slot % gpus;
}

SlotId NumberOfMember(SlotId slot, int stage, const std::vector<std::string>& replica) {
  if (slot < 0 || stage < 0 || stage >= static_cast<int>(replica.size())) return slot;
  const auto host = [&](int other) {
    const std::string& address = replica[static_cast<size_t>(other)];
    return address.substr(0, address.rfind(':'));
  };
  int here = 0;
  int before = 0;
  for (int other = 0; other < static_cast<int>(replica.size()); ++other) {
    if (host(other) != host(stage)) continue;
    ++here;
    if (other < stage) ++before;
  }
  return slot * here + before;
}

torch::Device DeviceOfSlot(torch::Device device, SlotId slot) {
  if (!device.is_cuda() || device.has_index()) return device;
  const int index = GpuOfSlot(slot, static_cast<int>(torch::cuda::device_count()));
  return torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
}

std::vector<std::string> SeenDevices() {
  std::vector<std::string> names = {"cpu"};
  for (const torch::Device& gpu : AllGpus()) names.push_back(gpu.str());
  return names;
}

absl::Status CheckDevice(torch::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  if (!device.is_cuda()) {
    return absl::InvalidArgumentError(
        absl::StrCat("device '", device.str(), "' is not known; ", kExpected));
  }
  return CheckGpu(device.has_index() ? device.index() : 0);
}

absl::Status UseDevice(torch::Device device) {
  if (absl::Status status = CheckDevice(device); !status.ok()) return status;
  if (!device.is_cuda() || !device.has_index()) return absl::OkStatus();
  try {
    c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return TorchError(absl::StrCat("selecting device '", device.str(), "'"), error);
  }
}

}  // namespace torchps
