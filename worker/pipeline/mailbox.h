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

// Where what the other processes of a replica send waits until this one wants it, in whatever order
// it comes. What is there can be taken although the replica has ended meanwhile.
//
// Thread-safe. Borrows the latch. Who sends takes care that not too much lies here: a stage is at
// most so many micro-batches ahead of the next one as there are stages behind it
// (worker/stages/pipeline_schedule.h).
class Mailbox {
 public:
  explicit Mailbox(StopLatch* stop);

  // From now on only parcels of this meeting are taken.
  void Open(uint64_t meeting);

  // ABORTED: not of this meeting, or there is none yet.
  absl::Status Check(uint64_t meeting) const;

  // ABORTED: of another meeting, or there is none yet. ALREADY_EXISTS: one of this name waits here.
  absl::Status Put(TensorMessage parcel);

  // Waits for it. Errors as Exchange::Take.
  absl::StatusOr<TensorMessage> Take(int from, const Exchange::Name& name);

  // Ends all waiting with `status`. The first one counts; false: this is not it.
  bool Fail(const absl::Status& status);
  // OK while it has not failed.
  absl::Status status() const;

 private:
  // Kind, stage that sent it, order, micro-batch.
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
