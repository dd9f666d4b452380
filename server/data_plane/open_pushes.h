#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "server/job/parameter_server.h"

namespace torchps {

// A Push that has not brought all of its frames, as OpenPushes sees it. Thread-safe.
class OpenPush {
 public:
  struct Holder {
    SlotId slot = 0;
    Incarnation incarnation = 0;
  };
  struct State {
    // Whose connection it came on; empty for a caller within this process.
    std::string connection;
    // Of its frames so far; none before the first one.
    absl::optional<Holder> holder;
    // It has a share of the receive budget, and since then nothing has come. None for a stranger's.
    absl::optional<absl::Duration> silent_since;
    // That share is of the budget for silent ones.
    bool is_aside = false;
  };

  virtual ~OpenPush() = default;

  virtual State Describe() = 0;
  // Moves the share of one that is silent to the budget for silent ones. False: there is no room.
  virtual bool MoveToStalledBudget() = 0;
  // Answers it, unless it was answered before.
  virtual void End(const absl::Status& status) = 0;
};

// Keeps Pushes that say nothing from keeping others waiting. A worker's Push takes its share of the
// receive budget before gRPC is asked for a frame, for gRPC does not tell when one begins to come.
// (A stranger's takes none: see PushCall.) So:
//
// - A Push of a slot whose lease has run out ends (ABORTED), whether others wait or not.
// - While others wait, one that has been silent for kSilence stands aside: its share moves to a
//   second budget, half as large as the first, and others get what it had.
// - Of those that came on one connection one may do so. The others end (DEADLINE_EXCEEDED, with
//   which a worker makes its push again).
// - Where the second budget is full, those end that have been silent for as long as a lease lasts,
//   and as long as a frame takes on a slow link.
//
// Thread-safe. The server outlives it.
class OpenPushes {
 public:
  using Name = uint64_t;

  // Longer than a worker that is computing needs for its next block, or a frame on most links.
  static constexpr absl::Duration kSilence = absl::Seconds(1);

  OpenPushes(ParameterServer* server, const Clock* clock) : server_(server), clock_(clock) {}

  Name Add(std::weak_ptr<OpenPush> push);
  // It has brought its frames, or was answered. Idempotent.
  void Remove(Name name);

  // To be called every now and then.
  void Watch();

 private:
  ParameterServer* const server_;
  const Clock* const clock_;
  Mutex mutex_;
  Name last_name_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Name, std::weak_ptr<OpenPush>> pushes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
