#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "proto/parameter_service.pb.h"
#include "server/store/block_journal.h"
#include "server/waiting/rising_number.h"

namespace torchps {

// Pushes all of whose frames have come and which are still to be answered: in SYNC when their round
// has been applied, and in any case once the journal has it.
//
// Thread-safe. What waits in a round or in the journal holds a number only, so that a push that is
// cancelled is forgotten at once. The journal is stopped before this is destroyed.
class FinishedPushes {
 public:
  using Done = std::function<void(const absl::StatusOr<PushReply>&)>;
  // Names a push that waits.
  using Id = uint64_t;

  struct Push {
    SlotId slot = 0;
    Incarnation incarnation = 0;
    Step step = 0;
    Done done;
    // The blocks that it has brought, where other streams bring the others; else empty.
    std::vector<BlockId> part = {};
  };

  // `answer` gets each push that was not cancelled, once, under no lock.
  explicit FinishedPushes(std::function<void(const Push&)> answer) : answer_(std::move(answer)) {}

  // Null, as at first: pushes wait for no journal. REQUIRES: before the first Add().
  void SetJournal(BlockJournal* journal) { journal_ = journal; }

  // Answers the push at once, or when it may be.
  Id Add(Push push, bool awaits_round);

  // Whether any waits for its round.
  bool AwaitRounds() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return rounds_.waiting() > 0;
  }

  // The push will not be answered, if it has not been yet.
  void Cancel(Id id);

  // Rounds up to `round` have been applied. Returns what is due: to be run under no lock.
  std::vector<RisingNumber::Continuation> RaiseRounds(int64_t round);

 private:
  struct Waiting {
    Push push;
    RisingNumber::WaiterId round = 0;  // in rounds_
  };

  void AwaitJournal(Id id) ABSL_LOCKS_EXCLUDED(mutex_);
  void Answer(Id id) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::function<void(const Push&)> answer_;
  BlockJournal* journal_ = nullptr;
  mutable Mutex mutex_;
  RisingNumber rounds_ ABSL_GUARDED_BY(mutex_);
  std::map<Id, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  Id last_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
