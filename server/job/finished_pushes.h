#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "proto/parameter_service.pb.h"
#include "server/store/block_journal.h"

namespace torchps {

// Pushes all of whose frames have come and which are not answered yet: a push is answered when it
// is settled (PushPolicy::IsSettled) and the journal has it.
//
// Thread-safe. The journal holds a number only, so a push that is cancelled is forgotten at once.
// The journal is stopped before this is destroyed.
class FinishedPushes {
 public:
  using Done = std::function<void(const absl::StatusOr<PushReply>&)>;
  // Names a push that waits.
  using Id = uint64_t;

  struct Push {
    SlotId slot = 0;
    Incarnation incarnation = 0;
    Step step = 0;
    // When its last frame had come.
    absl::Duration finished = absl::ZeroDuration();
    Done done;
    // The blocks that it has brought, where other streams bring the others; else empty.
    std::vector<BlockId> part = {};
  };

  // `answer` gets each push that was not cancelled, once, under no lock. `is_settled` takes no lock
  // of the caller's.
  FinishedPushes(std::function<bool(const Push&)> is_settled,
                 std::function<void(const Push&)> answer)
      : is_settled_(std::move(is_settled)), answer_(std::move(answer)) {}

  // Null, as at first: pushes wait for no journal. REQUIRES: before the first Add().
  void SetJournal(BlockJournal* journal) { journal_ = journal; }

  // Answers the push at once, or when it may be.
  Id Add(Push push);

  // Whether any is not settled yet.
  bool AnyUnsettled() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return unsettled_ > 0;
  }

  // The push will not be answered, if it has not been yet.
  void Cancel(Id id);

  // Blocks were updated: answers the pushes that are settled now. Called under no lock.
  void AnswerSettled() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiting {
    Push push;
    bool settled = false;
  };

  void AwaitJournal(Id id) ABSL_LOCKS_EXCLUDED(mutex_);
  void Answer(Id id) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::function<bool(const Push&)> is_settled_;
  const std::function<void(const Push&)> answer_;
  BlockJournal* journal_ = nullptr;
  mutable Mutex mutex_;
  std::map<Id, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t unsettled_ ABSL_GUARDED_BY(mutex_) = 0;
  Id last_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
