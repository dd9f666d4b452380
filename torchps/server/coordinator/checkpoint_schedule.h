#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "torchps/proto/coordinator.pb.h"

namespace torchps {

// Decides when to take a checkpoint of the job, assigns the number, and chooses the checkpoints to
// keep.
//
// A checkpoint is due after an interval, after a number of steps of any slot, when a user requests
// it, when a server needs to shorten its push log, and once after the job has ended. The first is
// due as soon as the model is initialised, so that a server that dies early can restart from it.
// The intervals after it are short at first and grow up to the configured interval. Only one
// checkpoint runs at a time. After a failure, the next attempt uses a new number, because servers
// may hold parts of the failed one. The newest checkpoints are kept. If these are all nonfinite,
// the newest finite checkpoint is kept as well.
//
// Not thread-safe. Does not read a clock: the caller passes `now`, which must not decrease. `steps`
// is the highest number of steps of any slot.
class CheckpointSchedule {
 public:
  struct Options {
    // Time between the starts of two checkpoints; 0 disables checkpoints by time.
    absl::Duration interval;
    // Time between the first and the second checkpoint, if it is shorter than `interval`. It
    // doubles each time, up to `interval`.
    absl::Duration first_interval = absl::Seconds(10);
    // Steps between two checkpoints; 0 disables checkpoints by steps. If `interval` is 0 as well,
    // checkpoints are not taken automatically.
    int64_t steps = 0;
    // Number of checkpoints to keep, at least 1.
    int keep = 1;
    // Maximum pause after a failed checkpoint. The pauses after failures in a row are 1, 2, 4
    // seconds and so on, because an outage may last some seconds or all night.
    absl::Duration retry = absl::Minutes(2);
  };

  // Values that the coordinator's state stores.
  struct Memory {
    uint64_t last_number = 0;    // highest number assigned so far, complete or not
    std::vector<uint64_t> kept;  // complete ones, ascending
    CheckpointStatus status;     // `enabled` is not set
  };

  explicit CheckpointSchedule(Options options) : options_(options) {}

  const Memory& memory() const { return memory_; }
  // Continues the schedule of the same job after a restart.
  void Restore(Memory memory);

  // Starts the schedule once the model is initialised, or after a restart. No checkpoint is due
  // before this call. Repeated calls have no effect.
  void Start(absl::Duration now, int64_t steps);
  // Records the end of the job. If `one_more` is true, a last checkpoint is due. False means that
  // the end of the job is saved already. After that, checkpoints are taken only on request.
  void End(bool one_more);
  // Requests a checkpoint that begins after this call.
  void Request() { requested_ = true; }

  // Makes a checkpoint due now, or after the pause that follows a failure. A running one counts. No
  // effect before the start and after the end of the job.
  void Hasten() { hastened_ = started_ && !ended_ && under_way_ == 0; }

  // Returns true if checkpoints are taken automatically.
  bool automatic() const { return options_.interval > absl::ZeroDuration() || options_.steps > 0; }
  // Returns true if the job has ended and the last automatic checkpoint was taken.
  bool complete() const { return ended_ && !last_one_due_ && under_way_ == 0; }
  // Returns true if the last checkpoint after the job's end is still missing.
  bool owes_last() const { return last_one_due_; }
  bool Due(absl::Duration now, int64_t steps) const;
  // Begins the due checkpoint and returns the number. REQUIRES: Due(now, steps).
  uint64_t Begin(absl::Duration now, int64_t steps);
  // Returns the checkpoints to keep once the running one is complete: that one and the newest
  // before it. If the running one is not `finite`, the newest finite one is included.
  std::vector<uint64_t> KeepList(bool finite) const;
  // Returns the newest finite checkpoint that is kept; 0 if no checkpoint is finite. After
  // Restore(), if the last checkpoint is not finite, this is a guess: the oldest one kept, because
  // a nonfinite model stays nonfinite.
  uint64_t newest_finite() const { return newest_finite_; }
  // Records that the running checkpoint is complete. `status` contains the size, times and number
  // of nonfinite blocks.
  void Succeed(const CheckpointStatus& status, absl::Duration now);
  void Fail(const absl::Status& error, absl::Duration now);

 private:
  // Returns the time between the starts of the latest checkpoint and the next one. It is infinite
  // if checkpoints by time are disabled.
  absl::Duration Interval() const;

  const Options options_;
  Memory memory_;
  bool started_ = false;
  bool ended_ = false;
  bool requested_ = false;
  bool hastened_ = false;
  bool last_one_due_ = false;
  bool last_one_under_way_ = false;
  uint64_t under_way_ = 0;
  uint64_t newest_finite_ = 0;
  int failures_in_a_row_ = 0;
  absl::Duration not_before_ = -absl::InfiniteDuration();
  absl::Duration due_at_ = absl::InfiniteDuration();
  int64_t due_at_steps_ = 0;
};

}  // namespace torchps
