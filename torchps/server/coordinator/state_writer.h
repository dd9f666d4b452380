#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/log_line.h"
#include "torchps/common/mutex.h"
#include "torchps/server/coordinator/coordinator_store.h"

namespace torchps {

// Holds back the coordinator's answers until the state that they depend on is stored. Writes the
// state on a separate thread. Each write releases all answers that depend on the written state or
// on an earlier one.
//
// States that must survive a power failure are synced before the answers are sent. Other states are
// passed to the kernel first, which is sufficient if only the process ends. They are synced within
// a second.
//
// The job continues if the disk fails. The answers are sent after one attempt, a message is logged,
// and the write is retried every second. If the coordinator dies before a write succeeds, it
// restarts with an older state. The workers then repeat some work. But no incarnation is assigned
// twice, because a restarted coordinator skips many numbers (CoordinatedJob::Restore). The
// coordinator publishes a new phase only after the state is synced, because workers that have seen
// a phase never return to the one before.
//
// If the first state of a job cannot be saved, the job does not begin, and the answers that depend
// on it are refused. Otherwise a restarted coordinator would not know the job and would give it a
// new id, which servers with the old id would reject. After a resume, a restarted coordinator would
// continue from the state before the resume.
//
// If a restarted coordinator cannot save the first state of a known job, it does not admit new
// processes. Otherwise the next coordinator would restart from the same state and assign the same
// incarnations again. Processes that joined before continue.
//
// Thread-safe. Runs the answers on the writer's thread, or on the thread that calls Stop().
class StateWriter {
 public:
  struct Options {
    // Must outlive this.
    CoordinatorStore* store = nullptr;
    // True if the store contains a synced state from which a restarted coordinator may continue.
    // False for a resumed job, because the stored state is from before the resume.
    bool has_state = false;
    // Returns the current state. Called on the writer's thread without holding the lock.
    std::function<CoordinatorState()> snapshot;
    // Called after a state with this revision was synced. Runs on the writer's thread without
    // holding the lock, and may call Hold().
    std::function<void(uint64_t revision)> synced;
    // Receives messages for the user.
    LogLine log;
    // Must outlive this.
    const Clock* clock = nullptr;
    // Maximum time from a change to the sync, and the pause between two attempts after a failure.
    absl::Duration pause = absl::Seconds(1);
  };
  // The outcome of saving the state, which each answer receives. Both fields are OK or UNAVAILABLE.
  // An answer that depends on a field with an error sends this error instead of the reply.
  struct Kept {
    // Error if a restarted coordinator would not know the job.
    absl::Status job;
    // Error if a restarted coordinator could assign the same incarnations again.
    absl::Status incarnations;
  };
  using Answer = std::function<void(const Kept& kept)>;
  using Answers = std::vector<Answer>;

  explicit StateWriter(Options options);
  ~StateWriter() { Stop(); }

  // Runs `answers` once a state of at least `revision` is stored and one of at least `synced` is
  // synced. Runs them at once if both are.
  void Hold(uint64_t revision, uint64_t synced, Answers answers);

  // Stores and syncs the last state, runs the remaining answers and stops the thread. Later calls
  // of Hold() run the answers at once without storing. Idempotent.
  void Stop();

 private:
  void Run();
  // Tries to store the current state, then runs the answers that are due.
  void Store(bool sync) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the argument for answers after a write that ended with `status`.
  Kept WhatIsKept(const absl::Status& status) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Held {
    uint64_t revision = 0;
    uint64_t synced = 0;
    Answers answers;
  };

  const Options options_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Highest revision passed to Hold(), and the highest that must be synced.
  uint64_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t wanted_synced_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_state_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_own_state_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t stored_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t synced_ ABSL_GUARDED_BY(mutex_) = 0;
  bool failing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Held> held_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace torchps
