#include "worker/pipeline/exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {

Mailbox::Mailbox(StopLatch* stop) : stop_(stop) {
  on_stop_.emplace(stop, [this] {
    const MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.SignalAll();
  });
}

void Mailbox::Open(uint64_t meeting) {
  const MutexLock lock(&mutex_);
  meeting_ = meeting;
}

absl::Status Mailbox::Check(uint64_t meeting) const {
  const MutexLock lock(&mutex_);
  if (meeting_ != 0 && meeting == meeting_) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("this process is not in meeting ", meeting, " of a replica, or not yet"));
}

absl::Status Mailbox::Put(TensorMessage parcel) {
  if (absl::Status status = Check(parcel.meeting()); !status.ok()) return status;
  const MutexLock lock(&mutex_);
  const Key key(parcel.kind(), parcel.from(), parcel.order(), parcel.micro_batch());
  if (!parcels_.emplace(key, std::move(parcel)).second) {
    return absl::AlreadyExistsError("this parcel was already received");
  }
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::StatusOr<TensorMessage> Mailbox::Take(int from, const Exchange::Name& name) {
  const Key key(name.kind, from, name.order, name.micro_batch);
  {
    const MutexLock lock(&mutex_);
    while (true) {
      const auto found = parcels_.find(key);
      if (found != parcels_.end()) {
        TensorMessage parcel = std::move(found->second);
        parcels_.erase(found);
        return parcel;
      }
      if (!status_.ok()) return status_;
      if (stopped_) break;
      changed_.Wait(&mutex_);
    }
  }
  return absl::CancelledError(stop_->reason());
}

bool Mailbox::Fail(const absl::Status& status) {
  const MutexLock lock(&mutex_);
  if (!status_.ok()) return false;
  status_ = status;
  changed_.SignalAll();
  return true;
}

absl::Status Mailbox::status() const {
  const MutexLock lock(&mutex_);
  return status_;
}

}  // namespace torchps
