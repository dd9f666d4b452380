#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/worker/loop/step_work.h"

namespace torchps {

// Maps positions in an epoch to sample indices (torchps/common/sample_order.h). Computes an epoch's
// order on first use and caches the latest order. Thread-compatible.
class EpochPositions {
 public:
  // Without `shuffle`, the position is the sample index.
  EpochPositions(uint64_t seed, int64_t samples, bool shuffle = true)
      : seed_(seed), samples_(samples), shuffle_(shuffle) {}

  // Returns the samples at positions [begin, end) of `epoch`, valid until the next call. Returns an
  // empty span if the range is outside the epoch.
  absl::Span<const int64_t> Samples(int epoch, int64_t begin, int64_t end);

 private:
  const uint64_t seed_;
  const int64_t samples_;
  const bool shuffle_;
  int epoch_ = 0;
  std::vector<int64_t> order_;
};

// Iterates over the samples of the slot's current sample lease, one step at a time.
//
// Thread-compatible.
class LeaseCursor {
 public:
  // `samples` is the epoch size.
  LeaseCursor(uint64_t seed, int64_t samples, bool shuffle);

  // Starts on a lease. INVALID_ARGUMENT if the lease is outside the epoch; lease() is then null.
  absl::Status Start(const DataLease& lease);
  // Ends the current lease and returns its id. REQUIRES: lease() is not null.
  uint64_t Finish();

  // Returns a step of the next `most` samples, or of fewer at the end of the lease. Sets only the
  // fields from StepWork::samples to StepWork::progress_end. The step's spans are valid until the
  // next Start(). REQUIRES: not all_taken().
  StepWork Next(int64_t most);
  // Makes Next() return the samples of the latest step again.
  void Rewind() { taken_ = taken_before_; }
  // Returns the positions of the latest step's samples, counted from the start of the lease.
  LeaseRange part() const;

  // Null if the slot holds no lease.
  const DataLease* lease() const { return lease_.has_value() ? &*lease_ : nullptr; }
  bool nothing_taken() const { return taken_ == 0; }
  bool all_taken() const { return taken_ == samples_.size(); }

 private:
  const int64_t epoch_samples_;
  EpochPositions positions_;
  std::optional<DataLease> lease_;
  absl::Span<const int64_t> samples_;
  size_t taken_ = 0;
  // The value of `taken_` before the latest step.
  size_t taken_before_ = 0;
};

}  // namespace torchps
