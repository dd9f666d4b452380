#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "tools/doctor/doctor_checks.h"

namespace torchps {

// What a worker that is to compute on a GPU of this machine will meet.
struct GpuFacts {
  std::string driver;    // its version; empty: none is loaded, or it hides
  int device_files = 0;  // /dev/nvidiaN
  // $CUDA_VISIBLE_DEVICES, where it is set.
  absl::optional<std::string> visible;
  // The worker program; or why there is none to be asked.
  absl::StatusOr<std::string> worker = absl::UnknownError("not looked for");
  // What that program sees: "cpu", "cuda:0". Empty: it did not say.
  std::vector<std::string> seen;
  // What it says against CUDA, or of why it could not say; empty if nothing.
  std::string complaint;
};

// Looks at the driver's files, and asks `worker` (a program with the flags of program/train.h) for
// the devices that it sees. Blocks for as long as that takes to start, a minute at most.
GpuFacts LookForGpus(const absl::StatusOr<std::string>& worker);

// What `facts` mean to a worker on `device` (cuda, cuda:N, several, cuda:all): a finding each for
// the driver, for the GPUs that it shows, for the program. A GPU that the program sees is there,
// whatever the files say.
std::vector<Finding> GpuFindings(const std::string& device, const GpuFacts& facts);

// That workers of this machine can compute on the device named (as ps_worker's --device).
std::vector<Finding> CheckDevice(const std::string& device,
                                 const absl::StatusOr<std::string>& worker);

}  // namespace torchps
