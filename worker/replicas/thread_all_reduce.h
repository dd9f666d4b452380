#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "torch/types.h"
#include "worker/replicas/local_group.h"

namespace torchps {

// Where the replicas of a step meet within its passes, each on a thread of its own, to add up small
// tensors. Once one has failed, nobody waits for it: all that wait and all that come get its
// status.
//
// Thread-safe. Borrows the group.
class ThreadAllReduce {
 public:
  ThreadAllReduce(LocalGroup* group, size_t replicas) : group_(group), tensors_(replicas) {}

  // A step begins, of which nobody has failed. REQUIRES: nobody is in SumToAll().
  void Begin();

  // Waits until the first `participants` replicas, to which `replica` belongs, have called this,
  // and makes each one's tensor the sum of all. INTERNAL: they are not at the same place, so that
  // no sum can come; otherwise what the group says, or how another replica has failed.
  absl::Status SumToAll(size_t replica, size_t participants, const torch::Tensor& tensor);

  // The replica has ended its part of the step, and how. Called once in a step by each. If it has
  // failed, the group is abandoned: its device may owe the others a sum. CANCELLED is no failure,
  // it just goes no further.
  void Leave(const absl::Status& status);

  // OK, or what failed first since Begin().
  absl::Status status() const;

 private:
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails if those that are waited for cannot come any more.
  void CheckReachable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  LocalGroup* const group_;

  mutable Mutex mutex_;
  CondVar changed_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // Those that wait, by replica; the others' are undefined.
  std::vector<torch::Tensor> tensors_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of whoever came first.
  size_t participants_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t length_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  // Sums that have been made.
  uint64_t sums_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
