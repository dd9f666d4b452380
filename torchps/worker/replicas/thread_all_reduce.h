#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "torch/types.h"
#include "torchps/common/mutex.h"
#include "torchps/worker/replicas/host_group.h"

namespace torchps {

// Sums small tensors across the replicas of a step during the passes. Each replica runs on a
// separate thread. After one replica failed, waiting and later calls return that replica's status.
//
// Thread-safe. Borrows the group.
class ThreadAllReduce {
 public:
  ThreadAllReduce(LocalGroup* group, size_t replicas) : group_(group), tensors_(replicas) {}

  // Starts a step, and clears earlier failures. REQUIRES: no SumToAll() call is in progress.
  void Begin();

  // Blocks until the first `participants` replicas, including `replica`, have called this. Then
  // sets each replica's tensor to the sum. INTERNAL: the replicas are at different calls, so a sum
  // is impossible. Also returns the group's errors and the failure of another replica.
  absl::Status SumToAll(size_t replica, size_t participants, const torch::Tensor& tensor);

  // Ends the replica's part of the step with `status`. Each replica calls this once per step. After
  // a failure, abandons the group, because other devices may wait for this replica's device.
  // CANCELLED ends the step without abandoning the group.
  void Leave(const absl::Status& status);

  // OK, or the first failure since Begin().
  absl::Status status() const;

 private:
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails if replicas wait, and the replicas that have not left are too few to complete the sum.
  void CheckReachable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  LocalGroup* const group_;

  mutable Mutex mutex_;
  CondVar changed_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // The tensors of the waiting replicas, by replica; undefined for the other replicas.
  std::vector<torch::Tensor> tensors_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  // The number of participants and the tensor length that the first waiting replica passed.
  size_t participants_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t length_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  // Number of completed sums.
  uint64_t sums_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
