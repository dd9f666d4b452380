// Measures copies between pinned host memory and --device, in both directions. The size is large
// enough that the fixed cost does not matter, so this is the bus speed available to a worker. On
// the CPU, measures the memory speed. Prints one JSON object.

#include <ATen/Context.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "torchps/common/clock.h"
#include "torchps/worker/device.h"

ABSL_FLAG(std::string, device, "cpu", "cpu, cuda or cuda:INDEX");
ABSL_FLAG(int, mib, 256, "MiB of a copy");
ABSL_FLAG(int, repetitions, 9, "copies each way; reports the median");

namespace torchps {
namespace {

// Returns GB/s (1e9 bytes) of the median copy.
double CopySpeed(torch::Tensor& to, const torch::Tensor& from, int repetitions) {
  const auto wait = [&] {
    if (to.is_cuda() || from.is_cuda()) torch::cuda::synchronize();
  };
  const SteadyClock clock;
  std::vector<double> seconds;
  for (int i = 0; i <= repetitions; ++i) {
    wait();
    const absl::Duration began = clock.Now();
    to.copy_(from, /*non_blocking=*/true);
    wait();
    // The first copy also causes page faults.
    if (i > 0) seconds.push_back(absl::ToDoubleSeconds(clock.Now() - began));
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return static_cast<double>(from.nbytes()) / seconds[seconds.size() / 2] / 1e9;
}

int Measure() {
  const absl::StatusOr<torch::Device> found = FindDevice(absl::GetFlag(FLAGS_device));
  if (!found.ok()) {
    std::fprintf(stderr, "device_copy: %s\n", std::string(found.status().message()).c_str());
    return 2;
  }
  const torch::Device device = DeviceOfSlot(*found, /*slot=*/0);
  const int64_t elements = (int64_t{absl::GetFlag(FLAGS_mib)} << 20) / sizeof(float);
  torch::Tensor host = torch::zeros({elements});
  if (device.is_cuda()) host = host.pin_memory();
  torch::Tensor there = torch::zeros({elements}, device);
  nlohmann::ordered_json json;
  json["device"] = device.str();
  json["bytes"] = host.nbytes();
  json["to_device_gbps"] = CopySpeed(there, host, absl::GetFlag(FLAGS_repetitions));
  json["to_host_gbps"] = CopySpeed(host, there, absl::GetFlag(FLAGS_repetitions));
  std::printf("%s\n", json.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return torchps::Measure();
}
