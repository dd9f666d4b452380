#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/client/slot_leases.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.pb.h"

namespace torchps {

// Renews a slot's leases on a separate thread, so that servers do not declare the slot dead during
// a long forward pass. Thread-safe.
class Heartbeat {
 public:
  // Renews all leases within `timeout`. Called on the heartbeat's thread.
  using Renew = std::function<absl::Status(absl::Duration timeout)>;
  // Called once on the heartbeat's thread when the slot is lost.
  using OnLost = std::function<void(const absl::Status&)>;

  // Returns the delay before the next renewal. Called after each renewal on the heartbeat's thread.
  using Pause = std::function<absl::Duration()>;

  // Calls `renew` after `interval`, then with the delays that `pause` returns; null means always
  // `interval`. Only ABORTED ends the renewals early, because the slot's incarnation is over. The
  // trainer's calls report other errors, for example an unreachable server.
  Heartbeat(absl::Duration interval, Renew renew, OnLost on_lost, Pause pause = nullptr);

  // Stops. Waits for a renewal in flight, at most until the renewal's timeout.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Returns OK while the slot is held, otherwise the status that `on_lost` received.
  absl::Status status() const;

 private:
  void Run();

  const absl::Duration interval_;
  const Renew renew_;
  const OnLost on_lost_;
  const Pause pause_;
  mutable Mutex mutex_;
  CondVar stopping_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// Makes the calls of a slot's upkeep, and reports the state of the slot's trainer.
//
// Called by SlotUpkeep on the heartbeat's thread. WorkerSlot implements it with the clients of the
// coordinator and of the servers; tests implement it without them.
class UpkeepCalls {
 public:
  virtual ~UpkeepCalls() = default;

  // Returns how long the trainer has been working on the current unit of work; zero if it is
  // waiting for other slots.
  virtual absl::Duration stalled_for() const = 0;
  // As CoordinatorClient::RenewSlot, SlotLeases::Renew and SlotLeases::StepAside; each within
  // `timeout`.
  virtual absl::StatusOr<RenewSlotReply> RenewSlot(absl::Duration timeout,
                                                   RenewSlotRequest request) = 0;
  virtual Renewals RenewLeases(absl::Duration timeout, absl::Duration stalled_for,
                               absl::Duration longest_pause) = 0;
  virtual void StepAside(absl::Duration timeout, const std::vector<int>& silent) = 0;
};

// Does the work of a slot's heartbeat:
//   - renews the slot's leases on the coordinator and the servers;
//   - takes the slot out of the servers' clocks if other slots would wait in vain, because only
//     this slot cannot reach a server, or because the trainer is stalled;
//   - logs the slot that this slot waits for.
//
// After leaving the clocks, the slot keeps the lease on the coordinator, and returns with the next
// pull or push. Used by one thread.
class SlotUpkeep {
 public:
  struct Options {
    SlotId slot = 0;
    // A server that answers no renewal for this time counts as silent. While a server leaves a
    // renewal unanswered, a renewal begins every eighth of this time.
    absl::Duration lease;
    // Maximum time for the trainer to finish a piece of work; after that the trainer counts as
    // stalled.
    absl::Duration progress_timeout = absl::InfiniteDuration();
    // Receives lines for the user.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // Borrowed.
    UpkeepCalls* calls = nullptr;
    const Clock* clock = nullptr;
  };

  explicit SlotUpkeep(Options options) : options_(std::move(options)) {}

  // Renews the leases within `timeout`, which is the time between two renewals. ABORTED: the slot
  // is lost. Other errors need no action, because the trainer's calls report them.
  absl::Status Renew(absl::Duration timeout);

  // Delay before the next renewal. Renewals begin at regular times, regardless of their duration.
  absl::Duration pause() const { return pause_; }

 private:
  void TellWhoIsWaitedFor(const Renewals& renewals, absl::Duration stalled_for);

  const Options options_;
  absl::Duration pause_;
  bool aside_ = false;
  std::optional<absl::Duration> logged_at_;  // time of the last log line about waiting
};

}  // namespace torchps
