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
#include "proto/checkpoint.pb.h"
#include "server/coordinator/slots/slot_holder.h"

namespace torchps {

// Hands out the training samples of a job, epoch after epoch, as leases on ranges of positions in
// the epoch's order (common/sample_order.h), and keeps the books on them.
//
// A range that comes back, unfinished or since its gradients changed nothing, is handed out again
// before any new one, joined with those next to it. Otherwise ranges go out in order, and the next
// epoch begins as soon as the present one is all handed out, so no slot waits at an epoch's end.
//
// Not thread-safe; knows no clock. Invariant, per epoch and after every call:
//   used + outstanding + unissued = samples,
// and a sample enters `used` once, however often it was handed out.
class DataLeases {
 public:
  struct Options {
    int64_t samples = 0;  // in one epoch, at least 1
    int epochs = 1;       // at least 1
    // No new range is handed out once ranges for so many pushes have been; the last one is cut to
    // fit. Ranges handed out again do not count twice. 0 = no limit.
    int64_t max_pushes = 0;
    // Samples of a step of all slots together; 0: each slot makes steps of its own. The last step
    // of an epoch may have fewer. The slots share it, so that the next epoch begins with a new
    // step, as in one process. Batch norm fails on one sample, so a last step of one sample takes
    // another from the step before.
    int64_t step_samples = 0;
  };

  // How much a lease holds at most: so many pushes of so many samples each, both at least 1. A
  // lease is shorter where an epoch ends, or where what came back is; and by one or two samples
  // where a push would otherwise hold a single one, if pushes are of more than two. With pushes of
  // two, three samples that came back are one lease, to be used in one push.
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
    uint64_t id = 0;  // from 1, rising; never used twice
    Range range;
    bool reissued = false;  // the range was out before and came back
    // Parts of all that the job hands out, before the lease's first sample and by its last one. Of
    // a range that was out before both are what is out now: the job does not go back.
    double progress_begin = 0;
    double progress_end = 0;
    // Samples of a whole step for which a lease of an epoch's shorter last step stands. All leases
    // of that step add up to a whole step. 0: another step.
    int64_t share = 0;
  };

  // Positions [begin, end) in a lease, from 0.
  struct Part {
    int64_t begin = 0;
    int64_t end = 0;
  };

  struct Finished {
    // False for a repeat, and for a lease that was released before (its range is, or will be,
    // another slot's): then nothing has changed.
    bool counted = false;
    int epoch = 0;  // of the lease, where counted
    // This call has closed the epoch's books.
    bool closed_epoch = false;
  };

  struct Books {
    int epoch = 0;
    int64_t samples = 0;
    int64_t used = 0;
    int64_t outstanding = 0;
    int64_t unissued = 0;  // not handed out yet, or back and not handed out again yet
    int64_t reissued = 0;  // handed out again, each time counted
    int64_t lost = 0;      // handed in as having changed nothing, each time counted
    // Nothing is outstanding and nothing more of this epoch will be handed out. Then used =
    // samples, unless max_pushes cut the epoch short.
    bool closed = false;
  };

  // REQUIRES: `options` within the limits stated there.
  explicit DataLeases(Options options);

  // Take() would give one.
  bool HasMore() const { return !returned_.empty() || !Exhausted(); }

  // Some lease is neither finished nor released.
  bool HasOutstanding() const { return !outstanding_.empty(); }

  // Some range came back and was not handed out again.
  bool HasReturned() const { return !returned_.empty(); }

  // The latest epoch that has begun; 0: none.
  int latest_epoch() const { return static_cast<int>(epochs_.size()); }

  // Epochs have a shorter last step.
  bool HasLastStep() const { return LastStepBegin() < options_.samples; }

  // The shorter last step of the latest epoch is all handed out.
  bool LastStepIsOut() const;

  // The next lease, for `holder`; none if there is nothing to hand out at present. That may change
  // as long as Complete() is false, since a range may come back. A holder may have several leases.
  std::optional<Lease> Take(SlotHolder holder, Size size);

  // `holder` has used all samples of its lease `id`, but that the gradients of `lost` changed
  // nothing: these come back. INVALID_ARGUMENT: no such lease was ever handed out, or it has no
  // such parts, in ascending order and apart. What is not counted, and why, see Finished.
  absl::StatusOr<Finished> Finish(uint64_t id, SlotHolder holder, absl::Span<const Part> lost = {});

  // `holder` is gone: what it has not finished comes back, to be handed out again. Returns the
  // number of samples that came back.
  int64_t Release(SlotHolder holder);

  // Hands out no new range from now on; what comes back unfinished still goes out again. Returns
  // the epoch whose books this has closed; 0: none.
  int Stop();

  // All books are closed, and nothing will ever be handed out again.
  bool Complete() const;

  // Of all epochs begun so far, from epoch 1.
  std::vector<Books> accounting() const;

  // All of it, for Restore() of another object with the same options.
  DataLeasesState Save() const;

  // Goes on where Save() was called. DATA_LOSS, and nothing has changed: these are not the books of
  // such options, and the message says what is wrong. REQUIRES: nothing was handed out yet.
  absl::Status Restore(const DataLeasesState& state);

 private:
  struct Epoch {
    int64_t used = 0;
    int64_t outstanding = 0;
    int64_t unissued = 0;
    int64_t reissued = 0;
    int64_t lost = 0;
    int64_t position = 0;  // first one never handed out
  };
  struct Outstanding {
    Range range;
    SlotHolder holder;
  };

  Epoch& epoch(int number) { return epochs_[number - 1]; }
  // Nothing is left to be handed out for the first time.
  bool Exhausted() const;
  bool Closed(const Epoch& epoch) const;
  // Part of all that the job hands out that was handed out, 0 to 1.
  double Progress() const;
  // Position at which an epoch's shorter last step begins; options_.samples where there is none.
  int64_t LastStepBegin() const;
  // Samples of a whole step that the last step's positions before `position` stand for.
  int64_t ShareBefore(int64_t position) const;
  // Cuts the next range that was never out; none where Exhausted().
  std::optional<Range> NextNewRange(Size size);
  // Cuts the next range that came back. REQUIRES: one did. The piece has at least two samples,
  // unless the range has one or pushes are of one.
  Range NextReturnedRange(Size size);

  const Options options_;
  int64_t pushes_ = 0;  // that all that was handed out for the first time makes
  bool stopped_ = false;
  uint64_t next_id_ = 1;
  std::vector<Epoch> epochs_;
  std::map<uint64_t, Outstanding> outstanding_;
  // Came back, lowest epoch and position first. No two are next to each other.
  std::set<Range> returned_;
};

}  // namespace torchps
