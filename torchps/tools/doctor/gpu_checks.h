#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "torchps/tools/doctor/doctor_checks.h"

namespace torchps {

// Facts about the GPUs on this machine, as a worker would see them.
struct GpuFacts {
  std::string driver;    // version; empty if not loaded or not visible
  int device_files = 0;  // number of /dev/nvidiaN files
  // $CUDA_VISIBLE_DEVICES, if set.
  std::optional<std::string> visible;
  // The worker program, or an error if it was not found.
  absl::StatusOr<std::string> worker = absl::UnknownError("not looked for");
  // Devices that the worker program lists: "cpu", "cuda:0". Empty if it failed.
  std::vector<std::string> seen;
  // The worker program's error about CUDA, or the reason for its failure; may be empty.
  std::string complaint;
};

// Looks for the driver and runs `worker`, a program with the flags of torchps/train.h, to list the
// devices. Blocks for up to a minute.
GpuFacts FindGpus(const absl::StatusOr<std::string>& worker);

// Returns findings on the driver, the visible GPUs and the worker program, for a worker on `device`
// (cuda, cuda:N, several, cuda:all). If the program sees a GPU, missing files of the driver are not
// a problem.
std::vector<Finding> GpuFindings(const std::string& device, const GpuFacts& facts);

// Checks that workers on this machine can compute on `device` (see ps_worker's --device).
std::vector<Finding> CheckDevice(const std::string& device,
                                 const absl::StatusOr<std::string>& worker);

}  // namespace torchps
