#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "torchps/client/calls/retry_deadline.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/stop_latch.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.grpc.pb.h"

namespace torchps {

// Makes a worker's calls to the coordinator (a role of server 0). Repeats each call until it is
// answered or the patience is used up. Repeats a parked call every 30 s. Waits without limit while
// the coordinator reads the job that it resumes.
//
// Errors of each call:
//   UNAVAILABLE          the coordinator did not answer for `patience`
//   ABORTED              this incarnation is over: the slot was declared dead or taken over
//   FAILED_PRECONDITION  another job, layout or protocol; not a torchps server
//   INVALID_ARGUMENT     the coordinator refuses the job or an argument
//   CANCELLED            Options::stop was stopped (not from LeaveJob)
//
// If the coordinator is silent and the endpoint uses an AddressResolver, the client follows the
// coordinator to a new address.
//
// Thread-compatible: only the trainer's thread makes calls. RenewSlot() is the exception. Any
// thread may call it concurrently after Join() succeeded.
class CoordinatorClient {
 public:
  struct Options {
    ServerEndpoint server;
    absl::Duration patience = absl::Seconds(60);
    // Receives lines for the user, for example about waiting.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // Borrowed.
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
  };

  explicit CoordinatorClient(Options options);

  // Joins the job and acquires a slot, which all later calls use. If another process holds the
  // requested slot, waits for up to `patience`, because that process may be dead and the lease
  // about to expire. FAILED_PRECONDITION names the first difference from the running job, or the
  // process that held the slot during all of `patience`.
  absl::StatusOr<JoinReply> Join(const JoinRequest& request);

  // Blocks until this worker must act, and returns the action. `initialized`: this slot has pushed
  // the initial values that the last call requested.
  absl::StatusOr<AwaitStartReply::Action> AwaitStart(bool initialized);

  // Reports a finished sample lease (0: none) and the figures since the last call, and requests the
  // next work. `lost` are the parts of the lease whose gradients changed no values. `idle`: the
  // slot has left the servers' clocks, so the call may wait until there is work.
  absl::StatusOr<NextWorkReply> NextWork(uint64_t finished_lease, const StepFigures& figures,
                                         absl::Span<const LeaseRange> lost, bool idle);

  absl::Status ReportEvaluation(const EvaluationResult& result);

  // Sends one piece of a model file: the bytes `data` at `offset` in a file of `bytes` bytes. The
  // caller must send the pieces in order. OUT_OF_RANGE: start again at offset 0. Errors that the
  // class does not list: the server did not store the file, for the reason in the message.
  absl::Status StoreModel(ModelFile file, int64_t bytes, int64_t offset, absl::string_view data);

  // Leaves the job permanently; `reason` is empty if the work is done. Retries for a few seconds,
  // even after a stop.
  absl::Status LeaveJob(const std::string& reason);

  // Makes one attempt, with `timeout`. Fills in the slot and incarnation of `request`. Thread-safe.
  absl::StatusOr<RenewSlotReply> RenewSlot(absl::Duration timeout, RenewSlotRequest request = {});

 private:
  struct Rules {
    absl::Duration timeout;
    bool may_park = false;
    bool stoppable = true;
    absl::Duration patience = absl::InfiniteDuration();
  };
  template <typename Request, typename Reply>
  using Method = grpc::Status (Coordinator::Stub::*)(grpc::ClientContext*, const Request&, Reply*);

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(Method<Request, Reply> method, const Request& request, Rules rules);

  std::shared_ptr<Coordinator::Stub> stub() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Switches to the coordinator's current address. Returns false if it did not change.
  bool Follow() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  // Used by the trainer's thread only.
  ServerEndpoint server_;
  mutable Mutex mutex_;
  std::shared_ptr<Coordinator::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  RetryDeadline patience_;
  SlotId slot_ = 0;
  Incarnation incarnation_ = 0;
  uint64_t calls_ = 0;           // number of NextWork() calls
  uint32_t initialization_ = 0;  // number in the last AwaitStartReply
};

}  // namespace torchps
