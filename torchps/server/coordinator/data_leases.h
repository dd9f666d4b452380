#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/server/coordinator/slot_registry.h"

namespace torchps {

// Hands out a job's training samples, epoch after epoch, as leases on position ranges in the
// epoch's order (torchps/common/sample_order.h), and tracks their use.
//
// Ranges return if they were not finished or if their gradients were lost. Returned ranges are
// handed out again before any new range, joined with adjacent ones. New ranges are handed out in
// order. The next epoch begins as soon as the current one is handed out completely, so slots do not
// wait at the end of an epoch.
//
// Not thread-safe; does not read a clock. Invariant for each epoch, after every call:
//   used + outstanding + unissued = samples
// Each sample is counted in `used` once, however often it was handed out.
class DataLeases {
 public:
  struct Options {
    int64_t samples = 0;  // in one epoch, at least 1
    int epochs = 1;       // at least 1
    // Maximum number of pushes. New ranges are not handed out after ranges for this many pushes;
    // the last range is cut to fit. Ranges handed out again do not count twice. 0 means unlimited.
    int64_t max_pushes = 0;
    // Samples in a common step for all slots; 0 if each slot makes separate steps. An epoch's last
    // step may be shorter. All slots together make this shorter step, so that the next epoch begins
    // with a new step, as in training with one process. Batch norm fails on a single sample, so a
    // last step of one sample takes another one from the step before.
    int64_t step_samples = 0;
  };

  // Maximum lease size: `pushes` pushes with `push_samples` samples each, both at least 1. Leases
  // are shorter at the end of an epoch or a returned range. They are also shorter by one or two
  // samples if a push would otherwise contain a single sample and `push_samples` exceeds two. If
  // `push_samples` is two, the last three samples of a returned range form one lease for one push,
  // because a push of a single sample would remain otherwise.
  struct Size {
    int64_t push_samples = 1;
    int64_t pushes = 1;
  };

  // Positions [begin, end) of epoch `epoch`, counted from 1.
  struct Range {
    int epoch = 0;
    int64_t begin = 0;
    int64_t end = 0;

    int64_t size() const { return end - begin; }
    friend bool operator<(const Range& a, const Range& b) {
      return std::tie(a.epoch, a.begin) < std::tie(b.epoch, b.begin);
    }
  };

  struct Lease {
    uint64_t id = 0;  // rises from 1; never used twice
    Range range;
    bool reissued = false;  // the range was handed out before and returned
    // Fractions of the job's samples that were handed out before the lease's first sample and up to
    // its last one. For a returned range, both are the current fraction, because progress never
    // decreases.
    double progress_begin = 0;
    double progress_end = 0;
    // For a lease in an epoch's shorter last step: the number of samples of a whole step that the
    // lease stands for. The shares of all leases in that step add up to `step_samples`. 0 for other
    // leases.
    int64_t share = 0;
  };

  // Positions [begin, end) in a lease, from 0.
  struct Part {
    int64_t begin = 0;
    int64_t end = 0;
  };

  struct Finished {
    // False if the lease was finished or released before. The range of a released lease goes to
    // another slot. Such a call has no effect.
    bool counted = false;
    int epoch = 0;  // of the lease, if counted
    // True if this call closed the epoch.
    bool closed_epoch = false;
  };

  struct Books {
    int epoch = 0;
    int64_t samples = 0;
    int64_t used = 0;
    int64_t outstanding = 0;
    int64_t unissued = 0;  // not handed out yet, or returned and not handed out again
    int64_t reissued = 0;  // handed out again, each time counted
    int64_t lost = 0;      // reported as lost, each time counted
    // True if the epoch is closed: all leases are finished, and the epoch's remaining samples will
    // not be handed out. Then used = samples, unless max_pushes or Stop() cut the epoch short.
    bool closed = false;
  };

  // REQUIRES: `options` are within the documented limits.
  explicit DataLeases(Options options);

  // Returns true if Take() would return a lease.
  bool HasMore() const { return !returned_.empty() || !Exhausted(); }

  // Returns true if some lease is neither finished nor released.
  bool HasOutstanding() const { return !outstanding_.empty(); }

  // Returns true if some range was returned and not handed out again.
  bool HasReturned() const { return !returned_.empty(); }

  // Returns the latest epoch that has begun, or 0.
  int latest_epoch() const { return static_cast<int>(epochs_.size()); }

  // Returns true if epochs end with a shorter last step.
  bool HasLastStep() const { return LastStepBegin() < options_.samples; }

  // Returns true if the shorter last step of the latest epoch is handed out completely.
  bool LastStepIsOut() const;

  // Returns the next lease for `holder`, or nullopt if nothing is available now. While Complete()
  // is false, that may change, because a range may return. Holders may own several leases.
  std::optional<Lease> Take(SlotHolder holder, Size size);

  // Finishes a lease. `holder` has used all samples of lease `id`. The gradients of the parts in
  // `lost` were not applied, so these parts are handed out again. Returns INVALID_ARGUMENT if the
  // lease was never handed out, or if the parts are not disjoint, ascending and within the lease.
  // See Finished for calls that do not count.
  absl::StatusOr<Finished> Finish(uint64_t id, SlotHolder holder, absl::Span<const Part> lost = {});

  // Reclaims the unfinished leases of a dead holder, to be handed out again. Returns the number of
  // reclaimed samples.
  int64_t Release(SlotHolder holder);

  // Stops handing out new ranges; returned ranges are still handed out again. Returns the number of
  // the epoch that this call closed, or 0.
  int Stop();

  // Returns true if each epoch is closed and handing out has ended.
  bool Complete() const;

  // Returns the accounting of all epochs begun so far, from epoch 1.
  std::vector<Books> accounting() const;

  // Returns the complete state, for Restore() of another object with the same options.
  DataLeasesState Save() const;

  // Restores the state that Save() returned. Returns DATA_LOSS, without changing anything, if the
  // state does not match the options; the message describes the problem. REQUIRES: ranges were not
  // handed out yet.
  absl::Status Restore(const DataLeasesState& state);

 private:
  struct Epoch {
    int64_t used = 0;
    int64_t outstanding = 0;
    int64_t unissued = 0;
    int64_t reissued = 0;
    int64_t lost = 0;
    int64_t position = 0;  // first position never handed out
  };
  struct Outstanding {
    Range range;
    SlotHolder holder;
  };

  Epoch& epoch(int number) { return epochs_[number - 1]; }
  // Returns true if no more new ranges will be handed out.
  bool Exhausted() const;
  bool Closed(const Epoch& epoch) const;
  // Returns the fraction of the job's samples that was handed out, 0 to 1.
  double Progress() const;
  // Returns the position at which an epoch's shorter last step begins, or options_.samples if all
  // steps are equal.
  int64_t LastStepBegin() const;
  // Returns the Lease::share of the last step's positions before `position`.
  int64_t ShareBefore(int64_t position) const;
  // Cuts the next new range; nullopt if Exhausted().
  std::optional<Range> NextNewRange(Size size);
  // Cuts a piece from the first returned range. The piece contains at least two samples, unless the
  // range contains only one or `size.push_samples` is 1. REQUIRES: HasReturned().
  Range NextReturnedRange(Size size);

  const Options options_;
  int64_t pushes_ = 0;  // number of pushes for all ranges handed out for the first time
  bool stopped_ = false;
  uint64_t next_id_ = 1;
  std::vector<Epoch> epochs_;
  std::map<uint64_t, Outstanding> outstanding_;
  // Returned ranges, lowest epoch and position first. Adjacent ranges are joined.
  std::set<Range> returned_;
};

}  // namespace torchps
