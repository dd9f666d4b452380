#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/stop_latch.h"
#include "proto/replica.pb.h"

namespace torchps {

// Where the other processes of a replica come to meet its leader: each waits here for the meeting
// to begin. One of each stage takes part, the latest that has come; one that comes again is known
// by its nonce.
//
// Thread-safe, but for Gather() and Begin(), which one thread calls in turn. Borrows clock and
// latch. Answers are given without a lock.
class ReplicaRendezvous {
 public:
  // Given once, from any thread: what the visitor takes part in, or why it does not.
  using Answer = std::function<void(const absl::StatusOr<RendezvousReply>&)>;

  struct Options {
    int stages = 1;
    // How long to wait for the others to come.
    absl::Duration patience = absl::Seconds(60);
    // A stage's, for people.
    std::function<std::string(int stage)> name_of;
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
  };

  explicit ReplicaRendezvous(Options options);

  // Someone has come, and waits for an answer. It is refused with UNAVAILABLE where the meeting has
  // begun with others or will not be, with FAILED_PRECONDITION where it does not fit the leader.
  void Visit(const RendezvousRequest& visitor, Answer answer) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until all have come, and returns what they said, `own` first. CANCELLED: stopped.
  // UNAVAILABLE: they did not come in time.
  absl::StatusOr<std::vector<RendezvousRequest>> Gather(const RendezvousRequest& own)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells those that were gathered what they take part in, now and when they ask again.
  void Begin(const RendezvousReply& meeting) ABSL_LOCKS_EXCLUDED(mutex_);

  // Sends those away that wait for a meeting that will not be.
  void Dismiss(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, and nobody waits here from now on.
  void Close(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Visitor {
    RendezvousRequest request;
    Answer answer;
  };

  // What is wrong with a visitor.
  absl::Status Check(const RendezvousRequest& visitor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The stages that have not come yet: "1 and 2".
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // The leader's own words, once it gathers the others; visitors by stage.
  std::optional<RendezvousRequest> own_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Visitor> visitors_ ABSL_GUARDED_BY(mutex_);
  // Those that were gathered, by stage, and what they take part in once that is known.
  std::map<int, uint64_t> nonces_ ABSL_GUARDED_BY(mutex_);
  std::optional<RendezvousReply> meeting_ ABSL_GUARDED_BY(mutex_);

  const StopLatch::Registration on_stop_;
};

}  // namespace torchps
