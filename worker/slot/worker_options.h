#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/calls/server_channel.h"
#include "common/block_map.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/stop_latch.h"
#include "proto/job.pb.h"
#include "torch/types.h"
#include "worker/cuda/device_scan.h"
#include "worker/device/block_encoder.h"
#include "worker/device/device_link.h"
#include "worker/device/finite_check.h"
#include "worker/feed/batch_uploader.h"
#include "worker/loop/simulated_slowdown.h"

namespace torchps {

// What a worker needs to know beside what it trains.
struct WorkerOptions {
  // Normalised. Where the coordinator has completed it, the coordinator's copy counts.
  JobSpec job;
  // All servers of the job, the same and in the same order for all of its workers. The first is
  // the coordinator too.
  std::vector<ServerEndpoint> servers;
  // A GPU without an index is the one of its slot (worker/device.h).
  torch::Device device = torch::kCPU;
  // Of a --device with several: where further replicas of the model compute, for a program that
  // makes them (worker/replicas/replica_group.h).
  std::vector<torch::Device> further_devices;
  // Where the stages of a torchps::Stages lie, one for each. Empty: all of the module is on
  // `device`, which is else the first of them.
  std::vector<torch::Device> stage_devices;
  // For tests: makes what copies between the host and the device, in place of a CudaLink. On the
  // CPU the device's memory is apart from the host's then. Null: a GPU has a CudaLink, the CPU
  // needs nothing.
  std::function<absl::StatusOr<std::unique_ptr<DeviceLink>>()> make_link;
  // For tests: as Learner::Options has it.
  std::function<std::unique_ptr<BatchUploader>(torch::Device device)> make_lift;
  // For tests: makes what looks at gradients of so many elements on a device, in place of the
  // kernels of a GPU.
  std::function<absl::StatusOr<std::unique_ptr<DeviceScan>>(int64_t elements)> make_scan;
  // For tests: makes what looks at each block of them on a device, likewise.
  std::function<absl::StatusOr<std::unique_ptr<FiniteCheck>>(const torch::Tensor& gradients,
                                                             const BlockMap& block_map)>
      make_finite_check;
  // For tests: makes what encodes such gradients on a device, likewise.
  std::function<absl::StatusOr<std::unique_ptr<BlockEncoder>>(
      const torch::Tensor& gradients, const BlockMap& block_map, const EncodingSpec& encoding)>
      make_encoder;
  // That a pass is cut into, so that the stages compute at once. 0: two for each stage.
  int micro_batches = 0;
  // Where several processes hold the slot's model together: the stage that this one holds, and
  // where each of them listens (HOST:PORT), in the order of their stages. -1: it holds all of the
  // model.
  int stage = -1;
  std::vector<std::string> replica;
  // -1: the lowest free one.
  SlotId slot = -1;
  // Tries one batch and joins no job (worker/slot/dry_run.h). `servers` is empty then.
  bool dry_run = false;
  // The process that held `slot` is known to be dead, so its lease need not be waited for.
  bool predecessor_died = false;
  // What makes this worker slower than its machine. Without a `wait` it waits with `stop`.
  SimulatedSlowdown::Options handicap;
  // That make batches ahead of the training thread.
  int loader_threads = 0;
  // A gradient is copied to the host once all of it is there, as by a loop of the user's own.
  bool copies_whole_gradients = false;
  // How long a server may be silent.
  absl::Duration patience = absl::Seconds(60);
  absl::Duration progress_interval = absl::Seconds(1);
  // Takes the lines that psctl reads ("torchps_worker progress ...").
  std::function<void(const std::string& line)> print = [](const std::string&) {};
  // Takes the lines that are for people only: what is being waited for.
  std::function<void(const std::string& line)> log = [](const std::string&) {};
  // Borrowed.
  const Clock* clock = nullptr;
  StopLatch* stop = nullptr;
};

}  // namespace torchps
