#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/server/parked/replies.h"

namespace torchps {

// Stores the coordinator calls that wait for an answer, and the answers that are due but not sent
// yet. Each slot may park at most one AwaitStart and one NextWork. Repeating a call replaces the
// parked one. This class does not know why a call waits.
//
// Not thread-safe. Invariant: each call is answered once or cancelled.
class ParkedCalls {
 public:
  using Id = ParkedCallId;

  // Parked calls of one kind, at most one for each slot.
  template <typename T>
  class OfSlots {
   public:
    explicit OfSlots(ParkedCalls* owner) : owner_(owner) {}

    void Park(SlotId slot, Reply<T> reply) {
      Answer(slot, absl::CancelledError("replaced by a repetition of this call"));
      parked_[slot] = ParkedReply<T>{++owner_->last_id_, std::move(reply)};
    }

    // Does nothing if the slot does not have a parked call.
    void Answer(SlotId slot, absl::StatusOr<T> answer) {
      const auto it = parked_.find(slot);
      if (it == parked_.end()) return;
      owner_->ready_.Add<T>(std::move(it->second.reply), std::move(answer));
      parked_.erase(it);
    }

    // Returns 0 if the slot does not have a parked call.
    Id Find(SlotId slot) const {
      const auto it = parked_.find(slot);
      return it == parked_.end() ? Id{0} : it->second.id;
    }

    // Returns the slots with a parked call, ascending.
    std::vector<SlotId> slots() const {
      std::vector<SlotId> slots;
      for (const auto& [slot, parked] : parked_) slots.push_back(slot);
      return slots;
    }

   private:
    friend class ParkedCalls;
    ParkedCalls* const owner_;
    std::map<SlotId, ParkedReply<T>> parked_;
  };

  // Parked calls of one kind that all get the same answer.
  template <typename T>
  class Of {
   public:
    explicit Of(ParkedCalls* owner) : owner_(owner) {}

    Id Park(Reply<T> reply) {
      parked_.push_back({++owner_->last_id_, std::move(reply)});
      return parked_.back().id;
    }

    bool empty() const { return parked_.empty(); }

    void Answer(const absl::StatusOr<T>& answer) {
      for (ParkedReply<T>& parked : std::exchange(parked_, {})) {
        owner_->ready_.Add<T>(std::move(parked.reply), answer);
      }
    }

    // Moves the parked calls to `other`.
    void MoveTo(Of& other) {
      for (ParkedReply<T>& parked : std::exchange(parked_, {})) {
        other.parked_.push_back(std::move(parked));
      }
    }

   private:
    friend class ParkedCalls;
    ParkedCalls* const owner_;
    std::vector<ParkedReply<T>> parked_;
  };

  ParkedCalls() = default;
  ParkedCalls(const ParkedCalls&) = delete;
  ParkedCalls& operator=(const ParkedCalls&) = delete;

  OfSlots<AwaitStartReply> starts{this};
  OfSlots<NextWorkReply> works{this};
  Of<JobStatus> statuses{this};
  // Calls that wait for the current checkpoint, and calls that wait for the next one.
  Of<CheckpointStatus> for_this_checkpoint{this};
  Of<CheckpointStatus> for_next_checkpoint{this};

  // Answers a call that does not wait. Returns 0.
  template <typename T>
  Id AnswerNow(Reply<T> reply, absl::StatusOr<T> answer) {
    ready_.Add<T>(std::move(reply), std::move(answer));
    return 0;
  }

  // Drops a call whose caller disconnected. Ignores unknown and answered calls.
  void Cancel(Id call);

  // Answers every parked call with `status`.
  void Abandon(const absl::Status& status);

  // Returns the answers that became due since the last call, in order. The caller must run them
  // without holding the lock.
  std::vector<std::function<void()>> TakeReady() { return ready_.Take(); }

 private:
  Id last_id_ = 0;
  PendingReplies ready_;
};

}  // namespace torchps
