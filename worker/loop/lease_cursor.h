#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/coordinator.pb.h"
#include "worker/loop/epoch_positions.h"

namespace torchps {

// The lease that a slot works off, if it has one: which samples it stands for, and which of them
// were taken for steps already.
//
// Thread-compatible.
class LeaseCursor {
 public:
  // The samples of a step.
  struct Piece {
    // Indices in the training data; valid until the next lease is taken up.
    absl::Span<const int64_t> samples;
    // What of the lease comes after them; valid as long.
    absl::Span<const int64_t> upcoming;
    // Of the first sample in the epoch's order.
    int64_t position = 0;
    // How far the job was when the samples were handed out, and when those behind them were, in
    // parts of 1.
    double progress_begin = 0;
    double progress_end = 0;
  };

  // Of an epoch with so many samples.
  LeaseCursor(uint64_t seed, int64_t samples, bool shuffle);

  // Takes a lease in hand. INVALID_ARGUMENT: it does not lie within its epoch; there is none then.
  absl::Status Start(const DataLease& lease);
  // There is none after this. Returns its id. REQUIRES: there is one.
  uint64_t Finish();

  // Takes what comes next, `most` samples at most. REQUIRES: not all are taken.
  Piece Next(int64_t most);
  // The latest piece will come again.
  void Rewind() { taken_ = taken_before_; }
  // The latest piece, as positions in the lease.
  LeaseRange part() const;

  // Null: none in hand.
  const DataLease* lease() const { return lease_.has_value() ? &*lease_ : nullptr; }
  bool nothing_taken() const { return taken_ == 0; }
  bool all_taken() const { return taken_ == samples_.size(); }

 private:
  const int64_t epoch_samples_;
  EpochPositions positions_;
  absl::optional<DataLease> lease_;
  absl::Span<const int64_t> samples_;
  size_t taken_ = 0;
  // Without the latest piece.
  size_t taken_before_ = 0;
};

}  // namespace torchps
