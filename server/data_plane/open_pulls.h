#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "server/job/parameter_server.h"

namespace torchps {

// Interface of a Pull for OpenPulls. Thread-safe.
class OpenPull {
 public:
  virtual ~OpenPull() = default;

  // Time since when a block of this pull is being sent and holds a share of the send budget;
  // otherwise nullopt.
  virtual absl::optional<absl::Duration> sending_since() = 0;
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

}  // namespace torchps
