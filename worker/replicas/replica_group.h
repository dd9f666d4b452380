#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device.h"
#include "worker/flat_model.h"
#include "worker/learner.h"
#include "worker/replicas/local_group.h"
#include "worker/replicas/replica_threads.h"
#include "worker/replicas/thread_all_reduce.h"
#include "worker/task.h"

namespace torchps {

// A worker's replicas of the model, one on each of its devices, that compute every step together
// and push once.
//
//   values of the step      lead -> all others
//   each pass               cut into a part for each replica (worker/feed/part_of_pass.h), which
//                           computes it on its own thread
//   gradients               added up in the lead's: the gradient of the mean loss over all samples
//   averaged buffers        the mean over the replicas, weighed by their samples; with
//                           training.sync_batchnorm the lead's
//   clipping, finite check  once, of the sum
//
// So what is pushed is what one device would push, but for batch norm's statistics without
// training.sync_batchnorm. The lead is the replica that servers know: the slot's model.
//
// Random draws: each GPU has a generator of its own, seeded differently; replicas on the CPU take
// turns at its only one, in no fixed order.
//
// Thread-compatible; has a thread for each replica but the lead, which the caller's computes.
// Borrows the lead's model. The dataset, `augment` and the objective's loss are called by several
// threads at once.
class ReplicaGroup {
 public:
  struct Options {
    // Those of a Learner for whole steps; `replica` and `replicas` are set here.
    Learner::Options learning;
    // Of the draws of further replicas on GPUs.
    uint64_t seed = 0;
  };

  // `further` are tasks like `lead` with modules of their own (MakeReplicaTasks), for `devices`.
  // INVALID_ARGUMENT: sync_batchnorm with a batch norm that cannot, or with a GPU that has two
  // replicas; FlatModel's. INTERNAL: torch, a device, or NCCL does not do.
  static absl::StatusOr<std::unique_ptr<ReplicaGroup>> Create(const Task& lead, FlatModel* model,
                                                              const std::vector<Task>& further,
                                                              const DeviceList& devices,
                                                              Options options);
  ~ReplicaGroup();
  ReplicaGroup(const ReplicaGroup&) = delete;
  ReplicaGroup& operator=(const ReplicaGroup&) = delete;

  // As Learner::Compute(), of all replicas together. No block is told early. `data_time` is the
  // slowest replica's, `compute_time` all else. The error is that of the replica that failed first;
  // the others end their pass, or their wait for it. After CANCELLED the next step begins anew, as
  // after other errors on devices without NCCL.
  absl::StatusOr<Learner::Gradient> Compute(const Learner::Step& step, Learner::Observer* observer);

 private:
  class Sums;
  struct Replica;

  ReplicaGroup(Options options, std::unique_ptr<LocalGroup> group, size_t replicas);

  absl::Status AddReplica(const Task& task, FlatModel* model);
  absl::Status CopyValues();
  // Adds up what the replicas that have computed something, the first ones, have left.
  absl::Status AddUp(const std::vector<Learner::Gradient>& parts, int64_t samples);

  const Options options_;
  const std::unique_ptr<LocalGroup> group_;
  ThreadAllReduce meeting_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  ReplicaThreads crew_;
};

}  // namespace torchps
