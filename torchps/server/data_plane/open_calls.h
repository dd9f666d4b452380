#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/server/job/hosted_job.h"
#include "torchps/server/job/parameter_server.h"
#include "torchps/server/parked/push_budget.h"

namespace torchps {

// Returns how long a stalled call may keep other calls waiting: the lease time plus the time of one
// block on a slow link. Thread-safe.
inline absl::Duration CallPatience(HostedJob* job) {
  // On a link slower than this, a call may be ended while its block is still in transfer.
  constexpr double kSlowBytesPerSecond = 1 << 20;
  return absl::Seconds(job->spec().membership().lease_seconds() +
                       static_cast<double>(job->store().largest_block_bytes()) /
                           kSlowBytesPerSecond);
}

// Lists open calls without keeping them alive. Thread-safe.
template <typename Call>
class OpenCalls {
 public:
  using Name = uint64_t;

  Name Add(std::weak_ptr<Call> call) {
    MutexLock lock(&mutex_);
    calls_[++last_name_] = std::move(call);
    return last_name_;
  }
  // Removes a call that is complete or was answered. Idempotent.
  void Remove(Name name) {
    MutexLock lock(&mutex_);
    calls_.erase(name);
  }

 protected:
  // Returns the listed calls that still exist, in the order of Add().
  std::vector<std::shared_ptr<Call>> List() const {
    std::vector<std::shared_ptr<Call>> list;
    MutexLock lock(&mutex_);
    for (const auto& [name, weak] : calls_) {
      if (std::shared_ptr<Call> call = weak.lock()) list.push_back(std::move(call));
    }
    return list;
  }

 private:
  mutable Mutex mutex_;
  Name last_name_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Name, std::weak_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
};

// Interface of a Pull for OpenPulls. Thread-safe.
class OpenPull {
 public:
  virtual ~OpenPull() = default;

  // Returns when gRPC began to send this pull's current block, which holds bytes of the pull
  // budget. Returns nullopt if no block is being sent.
  virtual std::optional<absl::Duration> sending_since() = 0;
  // Cancels the call.
  // REQUIRES: sending_since() returned a time.
  virtual void End() = 0;
};

// Cancels Pulls that do not read their blocks while other pulls wait. Each block in flight holds
// bytes of the pull budget, and a stuck reader would hold these bytes until the connection ends. So
// a Pull is CANCELLED if other pulls wait and a block was in flight for CallPatience(): the lease
// time plus the transfer time on a slow link. The worker then repeats the pull.
//
// Thread-safe. The server outlives this object.
class OpenPulls : public OpenCalls<OpenPull> {
 public:
  OpenPulls(ParameterServer* server, const Clock* clock) : server_(server), clock_(clock) {}

  // Must be called periodically.
  void Watch();

 private:
  ParameterServer* const server_;
  const Clock* const clock_;
};

// Interface of an incomplete Push for OpenPushes. Thread-safe.
class OpenPush {
 public:
  struct Holder {
    SlotId slot = 0;
    Incarnation incarnation = 0;
  };
  // The wait for one frame: its start, and the PushBudget share that holds the frame's bytes.
  struct Reading {
    absl::Duration since;
    PushBudget::Share share = PushBudget::Share::kWorking;
  };
  struct State {
    // The sender of the frames so far; empty before the first frame.
    std::optional<Holder> holder;
    // Set while the push waits for a frame.
    std::optional<Reading> reading;
    // The connection's name, set with `reading`; empty for a caller within this process.
    std::string connection;
  };

  virtual ~OpenPush() = default;

  virtual State Describe() = 0;
  // Moves the bytes that the push holds in kWorking to kStalled. Returns false if kStalled is full.
  virtual bool MoveToStalledShare() = 0;
  // Ends the call with `status` unless it was answered before.
  virtual void End(const absl::Status& status) = 0;
};

// Keeps stalled Pushes from blocking other pushes. Each Push takes bytes of PushBudget before it
// asks gRPC for a frame, because gRPC does not report when a frame begins to arrive. So:
//
// - Pushes of a slot with an expired lease end (ABORTED), even if other pushes do not wait.
// - While other pushes wait, a push that held bytes of kWorking for kSilence without a new frame is
//   stalled. Its bytes move to kStalled, and the waiting pushes use the freed bytes.
// - Each connection may keep one stalled push. Other stalled pushes on it end (DEADLINE_EXCEEDED),
//   and the worker repeats them.
// - If kStalled is full, the pushes that were silent for CallPatience() end.
//
// Thread-safe. The server outlives this object.
class OpenPushes : public OpenCalls<OpenPush> {
 public:
  // Longer than a worker needs to compute the next block, and longer than a frame needs on most
  // links.
  static constexpr absl::Duration kSilence = absl::Seconds(1);

  OpenPushes(ParameterServer* server, const Clock* clock) : server_(server), clock_(clock) {}

  // Must be called periodically.
  void Watch();

 private:
  ParameterServer* const server_;
  const Clock* const clock_;
};

}  // namespace torchps
