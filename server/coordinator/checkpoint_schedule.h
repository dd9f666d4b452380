#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"

namespace torchps {

// Decides when a checkpoint of the job is taken, by which number it goes, and which ones stay.
//
// One is due when its time has come, when a slot has gone on by so many steps, when a user asked
// for one, and once more when the job has ended. The first one is due as soon as the job runs, so
// that a server that dies early has something to come back to, and the next ones come sooner than
// by the interval. One at a time is under way. One that failed is tried again under another number,
// for a server may hold a part of it. The newest ones stay, and where they are not finite, the
// newest that is.
//
// Not thread-safe. Knows no clock: `now` is handed in and must not go back. `steps` is the highest
// number of steps that any slot has made.
class CheckpointSchedule {
 public:
  struct Options {
    // From the beginning of one to that of the next; 0: not by time.
    absl::Duration interval;
    // From the first one to the second, if that is less; then twice as long each time, until it is
    // the interval.
    absl::Duration first_interval = absl::Seconds(10);
    // 0: not by steps. If it is not by time either, nothing comes by itself.
    int64_t steps = 0;
    // How many stay, at least 1.
    int keep = 1;
    // After a failure the next one comes no sooner, and no later if it would have by itself; the
    // first failures in a row are followed sooner, by a second, two, four. A server
    // that is away for some seconds may be away for a night.
    absl::Duration retry = absl::Minutes(2);
  };

  // Plain numbers, for a coordinator's state.
  struct Memory {
    uint64_t last_number = 0;    // the highest ever given, complete or not
    std::vector<uint64_t> kept;  // complete ones, ascending
    CheckpointStatus status;     // but `enabled`
  };

  explicit CheckpointSchedule(Options options) : options_(options) {}

  const Memory& memory() const { return memory_; }
  // As of another schedule, of the same job.
  void Restore(Memory memory);

  // The job runs, or runs again. Before that, nothing is due.
  void Start(absl::Duration now, int64_t steps);
  // The job has ended: one more is due, or was taken already, and none by itself after that.
  void End(bool one_more);
  // A user wants one that begins after now.
  void Request() { requested_ = true; }

  // Something comes by itself.
  bool automatic() const { return options_.interval > absl::ZeroDuration() || options_.steps > 0; }
  // The job has ended, and nothing by itself is still to come.
  bool complete() const { return ended_ && !last_one_due_ && under_way_ == 0; }
  // Of that: the job's end is in none yet.
  bool owes_last() const { return last_one_due_; }
  bool Due(absl::Duration now, int64_t steps) const;
  // Begins the one that is due, and gives its number. REQUIRES: Due(now, steps).
  uint64_t Begin(absl::Duration now, int64_t steps);
  // The ones that are to be on the disk once the one under way is: it and the newest before it, and
  // where it is not `finite` also the newest that is.
  std::vector<uint64_t> KeepList(bool finite) const;
  // Of those that are kept; 0: none is finite. After Restore() a guess, of the oldest, where the
  // last one is not finite: a model that is not finite any more stays so.
  uint64_t newest_finite() const { return newest_finite_; }
  // The one under way is complete; `status` says its number, size, times, and whether it is finite.
  void Succeed(const CheckpointStatus& status, absl::Duration now);
  void Fail(const absl::Status& error, absl::Duration now);

 private:
  // From the one of the highest number to the next by time; infinite: none.
  absl::Duration Interval() const;

  const Options options_;
  Memory memory_;
  bool started_ = false;
  bool ended_ = false;
  bool requested_ = false;
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
