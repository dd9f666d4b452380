#pragma once

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/parameter_service.pb.h"
#include "server/byte_budget.h"
#include "server/hosted_job.h"

namespace torchps {

// A parameter server but for gRPC: no job at first, then one job for the rest of its life, which
// the first Hello brings along.
//
// Thread-safe. Owns its job.
class ParameterServer {
 public:
  struct Options {
    // Names this run of the process, so that a restarted server is not taken for the one it was;
    // not 0.
    uint64_t life = 0;
    // The budgets of frames that are being received or applied, and of copies of blocks that are
    // being sent, each for all workers together.
    int64_t receive_bytes = 0;
    int64_t send_bytes = 0;
    // Applying a frame takes so many times as long as it does, at least 1: to see a server that
    // cannot keep up.
    double slow = 1;
    // Outlives this object.
    const Clock* clock = nullptr;
  };
  explicit ParameterServer(const Options& options);

  // FAILED_PRECONDITION: other protocol, job, model or placement, naming the first difference.
  // INVALID_ARGUMENT: the job cannot be. ABORTED: the slot belongs to a newer incarnation.
  absl::StatusOr<HelloReply> Hello(const HelloRequest& request);

  // The job, for a call that was meant for this life of the server. ABORTED: no job, or another
  // life.
  absl::StatusOr<HostedJob*> JobFor(uint64_t server_life) const;

  // Null before the first Hello.
  HostedJob* job() const { return job_.load(std::memory_order_acquire); }

  // HostedJob::PushFrame, at the pace that Options asks for. With `slow` above 1 the thread waits
  // after the frame was applied, under no lock.
  absl::Status PushFrame(HostedJob* job, const PushHeader& header, const FramePayload& payload);

  ByteBudget& receive_budget() { return receive_budget_; }
  ByteBudget& send_budget() { return send_budget_; }

  ServerStatus Describe(bool include_ledger) const;

  // Traffic of frames, for the status.
  void CountReceived(uint64_t bytes) { bytes_in_.fetch_add(bytes, std::memory_order_relaxed); }
  void CountSent(uint64_t bytes) { bytes_out_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  const Options options_;
  const absl::Duration started_;
  ByteBudget receive_budget_;
  ByteBudget send_budget_;
  std::atomic<uint64_t> bytes_in_{0};
  std::atomic<uint64_t> bytes_out_{0};

  // Set once under the mutex, then read without it.
  std::atomic<HostedJob*> job_{nullptr};
  Mutex mutex_;
  std::unique_ptr<HostedJob> owned_job_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
