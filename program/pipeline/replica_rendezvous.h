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

// Collects the other processes of a replica at the leader: each waits here until the meeting
// begins. If several processes of a stage arrive, the latest replaces the earlier processes. The
// nonce identifies a process that calls again.
//
// Thread-safe, except for Gather() and Begin(), which one thread calls in turn. Borrows the clock
// and the latch. Calls answers without holding a lock.
class ReplicaRendezvous {
 public:
  // Called once, from any thread, with the meeting or the reason for the refusal.
  using Answer = std::function<void(const absl::StatusOr<RendezvousReply>&)>;

  struct Options {
    int stages = 1;
    // Maximum wait for the other processes.
    absl::Duration patience = absl::Seconds(60);
    // Returns a stage's name for messages.
    std::function<std::string(int stage)> name_of;
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
  };

  explicit ReplicaRendezvous(Options options);

  // Registers a visitor that waits for an answer. Refuses it with UNAVAILABLE if the meeting began
  // without it or was dismissed, and with FAILED_PRECONDITION if it does not match the leader.
  void Visit(const RendezvousRequest& visitor, Answer answer) ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until all stages arrived, and returns their requests, `own` first. CANCELLED: stopped.
  // UNAVAILABLE: some stages did not arrive in time.
  absl::StatusOr<std::vector<RendezvousRequest>> Gather(const RendezvousRequest& own)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends the meeting to the gathered processes, now and if they ask again.
  void Begin(const RendezvousReply& meeting) ABSL_LOCKS_EXCLUDED(mutex_);

  // Refuses the waiting visitors, because the meeting failed.
  void Dismiss(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Refuses the waiting visitors and all later visitors.
  void Close(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Visitor {
    RendezvousRequest request;
    Answer answer;
  };

  // Returns the mismatch between a visitor and the leader, or OK.
  absl::Status Check(const RendezvousRequest& visitor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the stages that have not arrived yet, for example "1 and 2".
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // The leader's request, set by Gather(), and the visitors by stage.
  std::optional<RendezvousRequest> own_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Visitor> visitors_ ABSL_GUARDED_BY(mutex_);
  // The gathered processes by stage, and the meeting after Begin().
  std::map<int, uint64_t> nonces_ ABSL_GUARDED_BY(mutex_);
  std::optional<RendezvousReply> meeting_ ABSL_GUARDED_BY(mutex_);

  const StopLatch::Registration on_stop_;
};

}  // namespace torchps
