#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/store/block_journal.h"

namespace torchps {

// Holds pushes that have arrived completely but are not answered yet. FinishedPushes answers a push
// when it is settled (PushPolicy::IsSettled) and durable in the journal.
//
// Thread-safe. The continuation in the journal holds only the id of a push, so Cancel() frees the
// push immediately. The owner stops the journal before destroying this object.
class FinishedPushes {
 public:
  using Done = std::function<void(const absl::StatusOr<PushReply>&)>;
  // Identifies a push that waits.
  using Id = uint64_t;

  struct Push {
    SlotId slot = 0;
    Incarnation incarnation = 0;
    Step step = 0;
    // When the last frame arrived.
    absl::Duration finished = absl::ZeroDuration();
    Done done;
    // The blocks in this push if other streams push the remaining blocks; otherwise empty.
    std::vector<BlockId> part = {};
  };

  // The job that received the pushes. Implemented by HostedJob. FinishedPushes calls both methods
  // on the thread that calls Add() or AnswerSettled(). It may also call Answer() on a thread that
  // runs the journal's continuations (JobLog).
  class Owner {
   public:
    virtual ~Owner() = default;

    // Returns PushPolicy::IsSettled. Called under a lock of FinishedPushes, so it must not take a
    // lock that a caller of FinishedPushes holds.
    virtual bool IsSettled(const Push& push) const = 0;
    // Replies to a push that is settled and durable. Called once for each push that was not
    // cancelled, without a lock held.
    virtual void Answer(const Push& push) = 0;
  };

  // `owner` outlives this object.
  explicit FinishedPushes(Owner* owner) : owner_(owner) {}

  // Sets the journal that pushes wait for; null (the default): pushes do not wait.
  // REQUIRES: Add() has not been called.
  void SetJournal(BlockJournal* journal) { journal_ = journal; }

  // Answers the push now if it is settled and durable; otherwise later.
  Id Add(Push push);

  // True if any push is not settled yet.
  bool AnyUnsettled() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return unsettled_ > 0;
  }

  // Forgets the push if it is not answered yet.
  void Cancel(Id id);

  // Answers the pushes that block updates have settled. Called without a lock held.
  void AnswerSettled() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiting {
    Push push;
    bool settled = false;
  };

  void AwaitJournal(Id id) ABSL_LOCKS_EXCLUDED(mutex_);
  void Answer(Id id) ABSL_LOCKS_EXCLUDED(mutex_);

  Owner* const owner_;
  BlockJournal* journal_ = nullptr;
  mutable Mutex mutex_;
  std::map<Id, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t unsettled_ ABSL_GUARDED_BY(mutex_) = 0;
  Id last_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
