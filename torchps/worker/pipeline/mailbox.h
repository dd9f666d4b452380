#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/common/mutex.h"
#include "torchps/common/stop_latch.h"
#include "torchps/proto/replica.pb.h"

namespace torchps {

// Identifies an expected parcel, together with the sender.
struct ParcelName {
  TensorMessage::Kind kind = TensorMessage::KIND_UNSPECIFIED;
  int64_t order = 0;  // number of the leader's order, from 1
  int micro_batch = 0;
};

// Returns INVALID_ARGUMENT unless the payload is a tensor as the header describes it: an unknown
// type, a negative dimension, a byte count that does not match type and shape, or a boolean other
// than 0 and 1.
absl::Status CheckTensor(const TensorMessage& parcel);

// Stores parcels from the other processes of a replica until this process needs them. Parcels may
// arrive in any order. Stored parcels can be taken even after the replica ended.
//
// The memory of the stored parcels is limited, because a hostile process can send any number. A
// sender does not wait for memory, so the limit must exceed the need of the protocol: in training,
// a stage is ahead of the next stage by at most as many micro-batches as there are later stages
// (torchps/worker/stages/pipeline.h), and in an evaluation by one round
// (torchps/worker/pipeline/stage_work.cc).
//
// Thread-safe. Borrows the latch.
class Mailbox {
 public:
  // `max_bytes` limits the memory of the stored parcels.
  Mailbox(StopLatch* stop, int64_t max_bytes);

  // Accepts only parcels of the meeting with this number from now on.
  void Open(uint64_t meeting);

  // Returns ABORTED unless Open() was called with this number.
  absl::Status Check(uint64_t meeting) const;

  // ABORTED: the parcel's meeting is not open. INVALID_ARGUMENT: as CheckTensor(). ALREADY_EXISTS:
  // a parcel with the same name is stored. RESOURCE_EXHAUSTED: the stored parcels and this one
  // exceed the limit.
  absl::Status Put(TensorMessage parcel);

  // Blocks until the parcel arrives. Errors as in Exchange::Take.
  absl::StatusOr<TensorMessage> Take(int from, const ParcelName& name);

  // Ends waiting calls with `status`. Returns false if an earlier call already failed the mailbox.
  bool Fail(const absl::Status& status);
  // OK unless Fail() was called.
  absl::Status status() const;

 private:
  // Kind, sender's stage, order, micro-batch.
  using Key = std::tuple<int, int, int64_t, int>;

  StopLatch* const stop_;
  const int64_t max_bytes_;
  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t meeting_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Key, TensorMessage> parcels_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<StopLatch::Registration> on_stop_;
};

}  // namespace torchps
