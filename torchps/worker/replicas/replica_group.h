#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/worker/device.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/learner.h"
#include "torchps/worker/loop/step_work.h"
#include "torchps/worker/replicas/host_group.h"
#include "torchps/worker/replicas/replica_threads.h"
#include "torchps/worker/replicas/thread_all_reduce.h"
#include "torchps/worker/task.h"

namespace torchps {

// Owns a worker's replicas of the model, one on each device. They compute each step together and
// push once.
//
//   values of the step      lead -> all other replicas
//   each pass               cut into one part per replica (torchps/worker/feed/batch_loader.h), which the
//                           replica computes on a separate thread
//   gradients               summed in the lead: the gradient of the mean loss over all samples
//   averaged buffers        mean over the replicas, weighted by samples; with
//                           training.sync_batchnorm, the lead's buffers
//   clipping, finite check  once, on the sum
//
// So the group pushes the same gradient as a single device, except for the batch norm statistics
// without training.sync_batchnorm. The lead is the replica known to the servers: the slot's model.
//
// Random numbers: each GPU uses a separate generator with a different seed. Replicas on the CPU
// share the single CPU generator, in no fixed order.
//
// Thread-compatible. Runs one thread per replica, except for the lead, which uses the caller's
// thread. Borrows the lead's model. Several threads call the dataset, `augment` and the objective's
// loss concurrently.
class ReplicaGroup {
 public:
  struct Options {
    // Options of a Learner for whole steps; the group sets `replica` and `replicas`.
    Learner::Options learning;
    // Seeds the generators of further replicas on GPUs.
    uint64_t seed = 0;
  };

  // Creates the group. `further` are tasks like `lead` with separate modules (MakeReplicaTasks),
  // for `devices`. INVALID_ARGUMENT: sync_batchnorm with an unsupported batch norm or with two
  // replicas on one GPU; or an error of FlatModel. INTERNAL: torch, a device or NCCL failed.
  static absl::StatusOr<std::unique_ptr<ReplicaGroup>> Create(const Task& lead, FlatModel* model,
                                                              const std::vector<Task>& further,
                                                              const DeviceList& devices,
                                                              Options options);
  ~ReplicaGroup();
  ReplicaGroup(const ReplicaGroup&) = delete;
  ReplicaGroup& operator=(const ReplicaGroup&) = delete;

  // Like Learner::Compute(), for all replicas together. Does not report blocks early. `data_time`
  // is the time of the slowest replica, `compute_time` the rest. Returns the error of the first
  // replica that failed; the other replicas finish the pass or stop waiting. After CANCELLED, the
  // next step starts normally; without NCCL, also after other errors.
  absl::StatusOr<Learner::Gradient> Compute(const StepWork& step, Learner::Observer* observer);

 private:
  class Passes;
  class Sums;
  struct Replica;

  ReplicaGroup(Options options, std::unique_ptr<LocalGroup> group, size_t replicas);

  absl::Status AddReplica(const Task& task, FlatModel* model);
  absl::Status CopyValues();
  // Sums the results of the replicas that computed samples; these are first in `parts`.
  absl::Status AddUp(const std::vector<Learner::Gradient>& parts, int64_t samples);

  const Options options_;
  const std::unique_ptr<LocalGroup> group_;
  ThreadAllReduce meeting_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  ReplicaThreads crew_;
};

}  // namespace torchps
