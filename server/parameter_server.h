#pragma once

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/parameter_service.pb.h"
#include "server/hosted_job.h"

namespace torchps {

// A parameter server but for gRPC: no job at first, then one job for the rest of its life, which
// the first Hello brings along.
//
// Thread-safe. Owns its job.
class ParameterServer {
 public:
  // `life` names this run of the process, so that a restarted server is not taken for the one it
  // was; not 0. `clock` outlives this object.
  ParameterServer(uint64_t life, const Clock* clock);

  // FAILED_PRECONDITION: other protocol, job, model or placement, naming the first difference.
  // INVALID_ARGUMENT: the job cannot be. ABORTED: the slot belongs to a newer incarnation.
  absl::StatusOr<HelloReply> Hello(const HelloRequest& request);

  // The job, for a call that was meant for this life of the server. ABORTED: no job, or another
  // life.
  absl::StatusOr<HostedJob*> JobFor(uint64_t server_life) const;

  // Null before the first Hello.
  HostedJob* job() const { return job_.load(std::memory_order_acquire); }

  ServerStatus Describe(bool include_ledger) const;

  // Traffic of frames, for the status.
  void CountReceived(uint64_t bytes) { bytes_in_.fetch_add(bytes, std::memory_order_relaxed); }
  void CountSent(uint64_t bytes) { bytes_out_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  const uint64_t life_;
  const Clock* const clock_;
  const absl::Duration started_;
  std::atomic<uint64_t> bytes_in_{0};
  std::atomic<uint64_t> bytes_out_{0};

  // Set once under the mutex, then read without it.
  std::atomic<HostedJob*> job_{nullptr};
  Mutex mutex_;
  std::unique_ptr<HostedJob> owned_job_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
