#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "torch/nn/module.h"
#include "torch/types.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/clock.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/stop_latch.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/device_factory.h"
#include "torchps/worker/loop/simulated_slowdown.h"
#include "torchps/worker/stages/stages.h"

// Defines a worker's options, and functions that determine the devices of the slot's model from the
// options. Stateless.

namespace torchps {

// The options of a worker apart from the task.
struct WorkerOptions {
  // Normalized. After joining, the coordinator's completed copy is used instead.
  JobSpec job;
  // All servers of the job, in the same order for each worker. The first server also runs the
  // coordinator.
  std::vector<ServerEndpoint> servers;
  // If a GPU lacks an index, the slot determines it (torchps/worker/device.h).
  torch::Device device = torch::kCPU;
  // Devices of further replicas of the model, if --device names several. Used by programs that
  // create replicas (torchps/worker/replicas/replica_group.h).
  std::vector<torch::Device> further_devices;
  // Devices of the stages of a torchps::Stages, one for each stage. If empty, the whole module is
  // on `device`; otherwise `device` is the first of them.
  std::vector<torch::Device> stage_devices;
  // Makes the objects that copy, check and encode on the device. Borrowed.
  const DeviceFactory* device_factory = GpuFactory::Get();
  // Number of micro-batches per pass, so that the stages compute in parallel. 0: two for each
  // stage.
  int micro_batches = 0;
  // If several processes hold the slot's model: the stage of this process, and the addresses
  // (HOST:PORT) of all processes in stage order. -1: this process holds the whole model.
  int stage = -1;
  std::vector<std::string> replica;
  // -1: the lowest free slot.
  SlotId slot = -1;
  // Tries one batch without joining a job (torchps/worker/slot/dry_run.h). `servers` is then empty.
  bool dry_run = false;
  // The previous process of `slot` is known to be dead, so the worker need not wait until that
  // process's slot lease expires.
  bool predecessor_died = false;
  // Slows this worker down. If `handicap.wait` is null, the worker waits on `stop`.
  SimulatedSlowdown::Options handicap;
  // Number of threads that make batches ahead of the training thread.
  int loader_threads = 0;
  // Copies a gradient to the host only once it is complete, as a hand-written training loop would.
  bool copies_whole_gradients = false;
  // The maximum time that a server may be unresponsive.
  absl::Duration patience = absl::Seconds(60);
  absl::Duration progress_interval = absl::Seconds(1);
  // Receives the lines that psctl parses ("torchps_worker progress ...").
  std::function<void(const std::string& line)> print = [](const std::string&) {};
  // Receives log lines for users, for example what the worker waits for.
  std::function<void(const std::string& line)> log = [](const std::string&) {};
  // Borrowed.
  const Clock* clock = nullptr;
  StopLatch* stop = nullptr;
};

// Returns OK if the configured devices can hold the module and compute with it. INVALID_ARGUMENT as
// for CheckDevice, CheckPrecision and Placement::Check.
absl::Status CheckPlacement(const WorkerOptions& options, const torch::nn::Module& module);

// Returns the placement of the module. `slot` may be -1 if it is not known yet. REQUIRES:
// CheckPlacement() is OK.
Placement MakePlacement(const WorkerOptions& options, SlotId slot);

// Returns the devices of this process that hold the slot's model, for the join request. Returns an
// empty list if there is only one.
std::vector<ReplicaMember> GetMembers(const WorkerOptions& options, const ModelLayout& layout,
                                      const std::string& host);

}  // namespace torchps
