#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/types.h"
#include "server/job/hosted_job.h"
#include "server/job/parameter_server.h"

namespace torchps {

// Returns how long a stalled call may keep other calls waiting: the lease time plus the time of one
// block on a slow link. Thread-safe.
inline absl::Duration CallPatience(HostedJob* job) {
  // Bandwidth of the slowest link that is waited for.
  constexpr double kSlowBytesPerSecond = 1 << 20;
  return absl::Seconds(job->spec().membership().lease_seconds() +
                       static_cast<double>(job->store().largest_block_bytes()) /
                           kSlowBytesPerSecond);
}

// Interface of a Pull for OpenPulls. Thread-safe.
class OpenPull {
 public:
  virtual ~OpenPull() = default;

  // Time since when a block of this pull is being sent and holds a share of the send budget;
  // otherwise nullopt.
  virtual std::optional<absl::Duration> sending_since() = 0;
  // Cancels the call.
  // REQUIRES: sending_since() returned a time.
  virtual void End() = 0;
};

// Cancels Pulls that do not read their blocks while other pulls wait. Each block in flight holds a
// share of the send budget, and a stuck reader would hold it as long as the connection lives. So a
// Pull is CANCELLED if other pulls wait and a block was in flight for CallPatience(): the lease
// time plus the transfer time on a slow link. The worker then repeats the pull.
//
// Thread-safe. The server outlives this object.
class OpenPulls {
 public:
  using Name = uint64_t;

  OpenPulls(ParameterServer* server, const Clock* clock) : server_(server), clock_(clock) {}

  Name Add(std::weak_ptr<OpenPull> pull);
  // Removes a pull that is not sending any more. Idempotent.
  void Remove(Name name);

  // Must be called periodically.
  void Watch();

 private:
  ParameterServer* const server_;
  const Clock* const clock_;
  Mutex mutex_;
  Name last_name_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Name, std::weak_ptr<OpenPull>> pulls_ ABSL_GUARDED_BY(mutex_);
};

// Interface of an incomplete Push for OpenPushes. Thread-safe.
class OpenPush {
 public:
  struct Holder {
    SlotId slot = 0;
    Incarnation incarnation = 0;
  };
  struct State {
    // The connection's name; empty for a caller within this process.
    std::string connection;
    // The sender of the frames so far; empty before the first frame.
    std::optional<Holder> holder;
    // Since when the push holds a share of the receive budget without new frames. Empty for pushes
    // on unverified connections.
    std::optional<absl::Duration> silent_since;
    // True if the share is in the budget for stalled pushes.
    bool is_aside = false;
  };

  virtual ~OpenPush() = default;

  virtual State Describe() = 0;
  // Moves a stalled push's share to the stalled budget. Returns false if that budget is full.
  virtual bool MoveToStalledBudget() = 0;
  // Ends the call with `status` unless it was answered before.
  virtual void End(const absl::Status& status) = 0;
};

// Keeps stalled Pushes from blocking other pushes. Each Push from a verified connection takes a
// share of the receive budget before it asks gRPC for a frame, because gRPC does not report when a
// frame begins to arrive. (For unverified connections see PushCall.) So:
//
// - Pushes of a slot with an expired lease end (ABORTED), even if other pushes do not wait.
// - While other pushes wait, the share of a push that was silent for kSilence moves to a second
//   budget, half as large as the first. The waiting pushes use the freed share.
// - Each connection may keep one such push. Other silent pushes on it end (DEADLINE_EXCEEDED), and
//   the worker repeats them.
// - If the second budget is full, the pushes that were silent for CallPatience() end.
//
// Thread-safe. The server outlives this object.
class OpenPushes {
 public:
  using Name = uint64_t;

  // Longer than a computing worker needs for the next block, and than a frame needs on most links.
  static constexpr absl::Duration kSilence = absl::Seconds(1);

  OpenPushes(ParameterServer* server, const Clock* clock) : server_(server), clock_(clock) {}

  Name Add(std::weak_ptr<OpenPush> push);
  // Removes a push that is complete or was answered. Idempotent.
  void Remove(Name name);

  // Must be called periodically.
  void Watch();

 private:
  ParameterServer* const server_;
  const Clock* const clock_;
  Mutex mutex_;
  Name last_name_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Name, std::weak_ptr<OpenPush>> pushes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
