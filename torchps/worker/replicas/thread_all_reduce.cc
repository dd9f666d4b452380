#include "torchps/worker/replicas/thread_all_reduce.h"

namespace torchps {
namespace {

absl::Status DifferentWays() {
  return absl::InternalError(
      "the devices' passes called different batch norms, so their statistics cannot be summed; "
      "with training.sync_batchnorm every pass must call the same batch norms in the same order");
}

}  // namespace

void ThreadAllReduce::Begin() {
  const MutexLock lock(&mutex_);
  status_ = absl::OkStatus();
  tensors_.assign(tensors_.size(), torch::Tensor());
  waiting_ = 0;
  left_ = 0;
}

absl::Status ThreadAllReduce::SumToAll(size_t replica, size_t participants,
                                       const torch::Tensor& tensor) {
  const MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  if (waiting_ == 0) {
    participants_ = participants;
    length_ = tensor.numel();
  } else if (participants != participants_ || tensor.numel() != length_) {
    Fail(DifferentWays());
    return status_;
  }
  tensors_[replica] = tensor;
  ++waiting_;
  if (waiting_ == participants_) {
    // Holds the lock during the sum. The other participants wait for the sum, and a replica that
    // calls Leave() blocks on the lock.
    const absl::Status summed =
        group_->SumToAll(absl::MakeConstSpan(tensors_).first(participants_));
    tensors_.assign(tensors_.size(), torch::Tensor());
    waiting_ = 0;
    if (summed.ok()) ++sums_;
    Fail(summed);
    changed_.SignalAll();
    return summed;
  }
  CheckReachable();
  const uint64_t before = sums_;
  while (status_.ok() && sums_ == before) changed_.Wait(&mutex_);
  return sums_ == before ? status_ : absl::OkStatus();
}

void ThreadAllReduce::Leave(const absl::Status& status) {
  const MutexLock lock(&mutex_);
  ++left_;
  // Only the first failure abandons the group. Later failures result from it.
  const bool is_first = status_.ok();
  Fail(status);
  if (is_first && !status.ok() && !absl::IsCancelled(status)) group_->Abandon();
  CheckReachable();
}

absl::Status ThreadAllReduce::status() const {
  const MutexLock lock(&mutex_);
  return status_;
}

void ThreadAllReduce::Fail(const absl::Status& status) {
  if (status.ok() || !status_.ok()) return;
  status_ = status;
  changed_.SignalAll();
}

void ThreadAllReduce::CheckReachable() {
  if (waiting_ > 0 && tensors_.size() - left_ < participants_) Fail(DifferentWays());
}

}  // namespace torchps
