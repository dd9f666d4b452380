#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "server/coordinator/coordinator_store.h"

namespace torchps {

// Holds the coordinator's answers back until the state that they stand on is in its store, on a
// thread of its own: one write serves all answers that have come meanwhile.
//
// A state that is to survive a power cut is synced before its answers go. Every other one is in the
// kernel's hands before they go, which is enough for any end of the process, and synced within a
// second.
//
// A disk that refuses does not stop the job: the answers go after one try, a sentence says so, and
// the state is tried again every second. A coordinator that dies meanwhile comes back with an older
// state, which costs work but never mixes two processes up (JobCoordinator::Restore). What must not
// be taken back, its phase, the coordinator tells only when it hears that the state is synced.
//
// A disk that refuses the first state of all does not let the job begin: the answers that stand on
// it are refused. A coordinator that died then would come back without the job and call it by
// another id, which servers that had heard of this one would never take; or, where the job is
// resumed, with the state before that.
//
// A disk that refuses the first state of this life, of a job that was kept before, lets no new
// process in: a coordinator that died then would come back to where this one did, and give the same
// incarnations out again. Processes that have theirs from before go on.
//
// Thread-safe. Gives the answers on its thread, or on that of Stop().
class StateWriter {
 public:
  struct Options {
    // Outlives this.
    CoordinatorStore* store = nullptr;
    // Whether a synced state of the job is in the store already, to which a coordinator that dies
    // now may come back. Not that of a job which is resumed: it has not begun again yet.
    bool has_state = false;
    // The present state; called on the writer's thread, under none of its locks.
    std::function<CoordinatorState()> snapshot;
    // A state with this revision has been synced. Called on the writer's thread, under none of its
    // locks; may Hold().
    std::function<void(uint64_t revision)> synced;
    // Takes the sentences.
    std::function<void(const std::string& line)> log;
    // Outlives this.
    const Clock* clock = nullptr;
    // From a change to its sync, and from one failed try to the next.
    absl::Duration pause = absl::Seconds(1);
  };
  // What the disk has for good when an answer is given. What is not OK is UNAVAILABLE, to be said
  // instead by the answer that needs it and can say so.
  struct Kept {
    // A state of the job, to which a coordinator that dies now comes back.
    absl::Status job;
    // One of this life, so that no later life gives the same incarnations out.
    absl::Status incarnations;
  };
  using Answer = std::function<void(const Kept& kept)>;
  using Answers = std::vector<Answer>;

  explicit StateWriter(Options options);
  ~StateWriter() { Stop(); }

  // Gives `answers` once a state of at least `revision` is stored and one of at least `synced` is
  // synced; at once if they are.
  void Hold(uint64_t revision, uint64_t synced, Answers answers);

  // Stores and syncs what is left, gives the last answers, ends the thread. Answers that are held
  // afterwards are given at once, and what they stand on is stored no more. Idempotent.
  void Stop();

 private:
  void Run();
  // Stores the present state, whatever comes of it, and gives the answers that may go now.
  void Store(bool sync) ABSL_LOCKS_EXCLUDED(mutex_);
  // What is kept after a write that ended with `status`.
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
  // What was ever held for; of that, what must be synced before it goes.
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
