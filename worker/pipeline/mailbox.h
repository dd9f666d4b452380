#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "common/stop_latch.h"
#include "proto/replica.pb.h"
#include "worker/pipeline/exchange.h"

namespace torchps {

// Stores messages from the other processes of a replica until this process needs them. Messages may
// arrive in any order. Stored messages can be taken even after the replica ended.
//
// Thread-safe. Borrows the latch. Senders limit the number of stored messages: the lead of a stage
// over the next one, in micro-batches, is at most the number of later stages
// (worker/stages/pipeline_schedule.h).
class Mailbox {
 public:
  explicit Mailbox(StopLatch* stop);

  // Accepts only parcels of this meeting from now on.
  void Open(uint64_t meeting);

  // Returns ABORTED if this meeting is not open.
  absl::Status Check(uint64_t meeting) const;

  // ABORTED: the parcel's meeting is not open. ALREADY_EXISTS: a parcel with the same name is
  // stored.
  absl::Status Put(TensorMessage parcel);

  // Blocks until the parcel arrives. Errors as in Exchange::Take.
  absl::StatusOr<TensorMessage> Take(int from, const Exchange::Name& name);

  // Ends waiting calls with `status`. Returns false if an earlier call already failed the mailbox.
  bool Fail(const absl::Status& status);
  // OK unless Fail() was called.
  absl::Status status() const;

 private:
  // Kind, sender's stage, order, micro-batch.
  using Key = std::tuple<int, int, int64_t, int>;

  StopLatch* const stop_;
  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t meeting_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Key, TensorMessage> parcels_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<StopLatch::Registration> on_stop_;
};

}  // namespace torchps
