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
#include "client/calls/retry_deadline.h"
#include "client/calls/server_channel.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/stop_latch.h"
#include "proto/coordinator.grpc.pb.h"

namespace torchps {

// A worker's calls to the coordinator (a role of server 0), each repeated until it is answered or
// the patience is used up; a call that the coordinator parks is made again every 30 s, and one that
// reads a job to go on with is waited for as long as that takes.
//
// Errors of every call:
//   UNAVAILABLE          the coordinator has not answered for `patience`
//   ABORTED              this incarnation is over: the slot was given up for dead, or taken over
//   FAILED_PRECONDITION  another job, layout or protocol; no torchps server
//   INVALID_ARGUMENT     the job or an argument is refused
//   CANCELLED            Options::stop was stopped (not from LeaveJob)
//
// A coordinator that is silent is followed to another address where its endpoint has an
// AddressResolver.
//
// Thread-compatible: one thread, the trainer's, makes all calls. RenewSlot() alone may be called
// from any other thread at the same time, once Join() has succeeded.
class CoordinatorClient {
 public:
  struct Options {
    ServerEndpoint server;
    absl::Duration patience = absl::Seconds(60);
    // Lines for the user: what is being waited for.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // Borrowed.
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
  };

  explicit CoordinatorClient(Options options);

  // Takes a slot, which all later calls are made for. While another process holds the wanted one it
  // is waited for, since that process may have died and its lease be about to run out.
  // FAILED_PRECONDITION names the first difference to the running job, or which process has held
  // the slot for all of `patience`.
  absl::StatusOr<JoinReply> Join(const JoinRequest& request);

  // Blocks until there is something to do.
  absl::StatusOr<AwaitStartReply::Action> AwaitStart(bool initialized);

  // Hands in a finished lease (0: none), of which `lost` changed nothing, with the figures since
  // the last call, asks for what is next. Blocks with `idle`.
  absl::StatusOr<NextWorkReply> NextWork(uint64_t finished_lease, const StepFigures& figures,
                                         absl::Span<const LeaseRange> lost, bool idle);

  absl::Status ReportEvaluation(const EvaluationResult& result);

  // Hands over one piece of a model file; the pieces' order is the caller's. OUT_OF_RANGE: begin
  // again at offset 0. Other errors than those above: the file is not kept, for this reason.
  absl::Status StoreModel(ModelFile file, int64_t bytes, int64_t offset, absl::string_view data);

  // Leaves for good; `reason` is empty where the work is done. Tries for a few seconds, also after
  // a stop.
  absl::Status LeaveJob(const std::string& reason);

  // One try, at most `timeout`. `request` without the slot and its incarnation. Thread-safe.
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
  // Goes on where the coordinator is by now, if that is elsewhere.
  bool Follow() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  // Of the trainer's thread.
  ServerEndpoint server_;
  mutable Mutex mutex_;
  std::shared_ptr<Coordinator::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  RetryDeadline patience_;
  SlotId slot_ = 0;
  Incarnation incarnation_ = 0;
  uint64_t calls_ = 0;           // of NextWork
  uint32_t initialization_ = 0;  // that AwaitStart() asked for last
};

}  // namespace torchps
