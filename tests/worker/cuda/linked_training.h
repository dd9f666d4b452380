#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "torch/types.h"
#include "worker/slot/worker_options.h"

// Trains whole workers on the CPU, on small jobs with separate servers and devices of host memory.
// Tests compare the learned results. Each function blocks the calling thread until the job is done.

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

using MakeLink = decltype(WorkerOptions::make_link);
using MakeScan = decltype(WorkerOptions::make_scan);
using MakeEncoder = decltype(WorkerOptions::make_encoder);
using MakeFiniteCheck = decltype(WorkerOptions::make_finite_check);

// The device's features and the module's variant.
struct Extras {
  MakeScan make_scan = nullptr;
  MakeEncoder make_encoder = nullptr;
  // Every other pass skips a layer, and in one pass a block is not finite.
  bool is_odd = false;
  MakeFiniteCheck make_finite_check = nullptr;
};

// Supplies a worker's batches. Without an uploader, a batch is on the device once created.
struct Feed {
  std::function<std::unique_ptr<BatchUploader>(torch::Device device)> make_lift;
  int loader_threads = 0;
};

// Trains one worker on two servers. `downs` is as in FakeLink::Options.
Learnt Train(const JobSpec& job, MakeLink make_link,
             const std::shared_ptr<std::atomic<int64_t>>& downs, const Feed& feed = {},
             const Extras& extras = {});
// Trains on the host, without copies.
Learnt Train(const JobSpec& job);

// Expects equal losses and values, bit by bit.
void ExpectTheSame(const Learnt& learnt, const Learnt& plain);

// Returns GPU kernels that run on the host and access the "device" memory directly. Increments
// `*made`, which the caller owns.
MakeScan ScanByKernels(int* made);
MakeEncoder EncodeByKernels(int* made);
MakeFiniteCheck LookByKernels(int* made);

}  // namespace torchps
