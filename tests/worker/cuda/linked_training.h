#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/worker/cuda/fake_device.h"
#include "torch/types.h"
#include "torchps/proto/job.pb.h"

// Trains whole workers on the CPU, on small jobs, with servers inside the process and simulated
// devices in host memory. Tests compare the losses and values that the workers learned. Each
// function blocks the calling thread until the job is done.

namespace torchps {

// Returns a one-worker job of 24 steps with these settings.
JobSpec JobWith(const std::string& more, const std::string& further = "");

struct Learnt {
  absl::Status status;
  std::vector<double> losses;  // per step
  std::vector<torch::Tensor> values;
  std::vector<std::string> said;
  // Copies down: the total, and the copies that began before a backward pass reached the first
  // layer.
  int64_t downs = 0;
  int64_t early_downs = 0;
};

// Variants of the worker and of the module.
struct Variant {
  int loader_threads = 0;
  // Every other pass skips a layer, and in one pass a block is not finite.
  bool is_odd = false;
};

// Trains one worker on two servers. The worker computes on `device`.
Learnt Train(const JobSpec& job, const FakeDevice& device, const Variant& variant = {});
// Trains on the host, without copies.
Learnt Train(const JobSpec& job, const Variant& variant = {});

// Expects equal losses and values, bit by bit.
void ExpectTheSame(const Learnt& learnt, const Learnt& plain);

}  // namespace torchps
