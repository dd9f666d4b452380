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

// Whole workers on the CPU, on small jobs with servers of their own, whose devices are made of host
// memory: for tests that compare what they learn. Each runs on the calling thread, and is done when
// its function returns.

namespace torchps {

// One worker's job of 24 steps, with what differs.
JobSpec JobWith(const std::string& more, const std::string& further = "");

struct Learnt {
  absl::Status status;
  std::vector<double> losses;  // by step
  std::vector<torch::Tensor> values;
  std::vector<std::string> said;
  // Copies down: all of them, and those that began before a backward pass had reached the first
  // layer.
  int64_t downs = 0;
  int64_t early_downs = 0;
};

using MakeLink = decltype(WorkerOptions::make_link);
using MakeScan = decltype(WorkerOptions::make_scan);
using MakeEncoder = decltype(WorkerOptions::make_encoder);
using MakeFiniteCheck = decltype(WorkerOptions::make_finite_check);

// What a worker's device has, and what its module is like.
struct Extras {
  MakeScan make_scan = nullptr;
  MakeEncoder make_encoder = nullptr;
  // In every other pass a layer is left out, and in one pass a block is not finite.
  bool is_odd = false;
  MakeFiniteCheck make_finite_check = nullptr;
};

// Where a worker's batches come from. Without a lift they are there when they are made.
struct Feed {
  std::function<std::unique_ptr<BatchUploader>(torch::Device device)> make_lift;
  int loader_threads = 0;
};

// A worker's way through a job on two servers of its own. `downs`: FakeLink::Options.
Learnt Train(const JobSpec& job, MakeLink make_link,
             const std::shared_ptr<std::atomic<int64_t>>& downs, const Feed& feed = {},
             const Extras& extras = {});
// On the host, without copies.
Learnt Train(const JobSpec& job);

// The same losses and values, to the last bit.
void ExpectTheSame(const Learnt& learnt, const Learnt& plain);

// Kernels of a GPU that run on the host, and take the "device's" memory as it is. `made` is counted
// up, and borrowed.
MakeScan ScanByKernels(int* made);
MakeEncoder EncodeByKernels(int* made);
MakeFiniteCheck LookByKernels(int* made);

}  // namespace torchps
