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

// A Pull that has come, as OpenPulls sees it. Thread-safe.
class OpenPull {
 public:
  virtual ~OpenPull() = default;

  // Since when a block of it has been on its way, which holds a share of the send budget.
  virtual absl::optional<absl::Duration> sending_since() = 0;
  // Breaks it off. REQUIRES: sending_since() has told a time.
  virtual void End() = 0;
};

// Keeps Pulls whose callers do not read from keeping others waiting. A block on its way holds its
// share of the send budget until it has left, and a caller that takes nothing, while its connection
// lives, would hold it for ever. So a Pull ends (CANCELLED, with which a worker makes its pull
// again) while others wait, where a block has been on its way for as long as a lease lasts, and as
// long as it takes on a slow link.
//
// Thread-safe. The server outlives it.
class OpenPulls {
 public:
  using Name = uint64_t;

  OpenPulls(ParameterServer* server, const Clock* clock) : server_(server), clock_(clock) {}

  Name Add(std::weak_ptr<OpenPull> pull);
  // It sends no more. Idempotent.
  void Remove(Name name);

  // To be called every now and then.
  void Watch();

 private:
  ParameterServer* const server_;
  const Clock* const clock_;
  Mutex mutex_;
  Name last_name_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Name, std::weak_ptr<OpenPull>> pulls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
