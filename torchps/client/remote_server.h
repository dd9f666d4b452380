#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/generic/generic_stub.h"
#include "torchps/client/calls/client_call.h"
#include "torchps/client/calls/retry_deadline.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/client/rollback_accounting.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/transport/shared_values.h"

namespace torchps {

// Tracks a slot's lease on one server, from Hello to Leave, as seen by the slot.
//
// Thread-safe, except that only one renewal may be in progress at a time. Borrows the clock.
class ServerLease {
 public:
  // History of the renewals, in clock times.
  struct Contact {
    absl::Duration answered;  // when the server last answered a renewal or Hello
    // Start of the first unanswered renewal after `answered`.
    std::optional<absl::Duration> missed;
    // Starts of the first and last renewal in the current unbroken run of answered renewals.
    std::optional<absl::Duration> first_reached;
    absl::Duration last_reached;
  };

  explicit ServerLease(const Clock* clock) : clock_(clock) {}

  // Records that this server incarnation admitted the slot.
  void Begin(uint64_t server_incarnation) {
    MutexLock lock(&mutex_);
    server_incarnation_ = server_incarnation;
    contact_.missed.reset();
    contact_.answered = clock_->Now();
  }

  // Stops renewals until the next greeting (Hello).
  void End() {
    MutexLock lock(&mutex_);
    server_incarnation_ = 0;
  }

  // The server incarnation to renew at; 0 if there is nothing to renew.
  uint64_t server_incarnation() const {
    MutexLock lock(&mutex_);
    return server_incarnation_;
  }

  // Records the start of a renewal.
  void RenewalBegins() {
    MutexLock lock(&mutex_);
    begun_ = clock_->Now();
  }

  // Records the end of a renewal. If the renewal began more than `longest_pause` after the start of
  // the previous answered renewal, the server may have been unreachable in between. Then a new run
  // of answered renewals begins (Contact::first_reached).
  void RenewalEnds(bool answered, absl::Duration longest_pause) {
    MutexLock lock(&mutex_);
    if (!answered) {
      contact_.first_reached.reset();
      // A renewal that began before the last greeting does not count as missed.
      if (!contact_.missed.has_value() && begun_ >= contact_.answered) contact_.missed = begun_;
      return;
    }
    const bool goes_on =
        contact_.first_reached.has_value() && begun_ - contact_.last_reached <= longest_pause;
    if (!goes_on) contact_.first_reached = begun_;
    contact_.last_reached = begun_;
    contact_.missed.reset();
    contact_.answered = clock_->Now();
  }

  // REQUIRES: the server admitted the slot.
  Contact contact() const {
    MutexLock lock(&mutex_);
    return contact_;
  }

 private:
  const Clock* const clock_;
  mutable Mutex mutex_;
  uint64_t server_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration begun_ ABSL_GUARDED_BY(mutex_);
  Contact contact_ ABSL_GUARDED_BY(mutex_);
};

// Represents one parameter server from the view of one slot: the address, the incarnation that
// answered the last greeting (Hello), and the retry state.
//
// Silent servers may have moved. If the endpoint uses an AddressResolver, the client looks up the
// new address with the same patience, and greets the server there like a restarted one.
//
// Used on the polling thread of the CallLoop. The exceptions are endpoint(), index(), stub(),
// lease() and RestoreRequest(), which are thread-safe, and start_clock() and last_step(), which may
// be read between rounds.
class RemoteServer {
 public:
  // `hello` is the request for all greetings; the constructor fills in server_index. The request
  // offers shared memory only while the server is on this machine. `map` is needed to read the
  // server's offer. `accounting` records the losses of a restarted server. Borrows `map` and
  // `accounting`.
  RemoteServer(ServerEndpoint endpoint, HelloRequest hello, const BlockMap* map,
               RollbackAccounting* accounting, RetryDeadline::Options patience);

  // The current address.
  ServerEndpoint endpoint() const { return line()->endpoint; }
  int index() const { return index_; }
  RetryDeadline& patience() { return patience_; }
  // For Push and Pull, which use byte frames. Use the stub only for a call that begins at once,
  // because it is destroyed when the server moves.
  grpc::GenericStub* generic_stub() { return &line()->generic_stub; }
  // For all other calls.
  std::shared_ptr<ParameterService::Stub> stub() const;
  // The slot's lease on this server.
  ServerLease& lease() { return lease_; }

  // The incarnation that answered the last greeting; 0 before the first greeting.
  uint64_t server_incarnation() const { return server_incarnation_; }
  // The clock to start from: the maximum of the server's min clock and this slot's last step, as of
  // the last greeting.
  Step start_clock() const { return start_clock_; }
  // The last step of the slot that a block on this server has seen, as of the last greeting. The
  // step may be from an earlier process of the slot.
  Step last_step() const { return last_step_; }
  // Shared memory with this server's values. If it is set, the server also reads pushes from the
  // memory offered in Hello. Null: payloads use the network. Replaced by the next greeting; holders
  // may keep the old one.
  const std::shared_ptr<const SharedValues>& shared_values() const { return shared_values_; }

  // Returns a Hello that makes the server restore the job, if a restart lost it, without admitting
  // the slot. Thread-safe.
  HelloRequest RestoreRequest() const;

  // Creates a Hello call, which stores the reply in this object. The call fails with
  // FAILED_PRECONDITION if ExpectModel() was called and the server lost the model.
  std::unique_ptr<ClientCall> MakeHello();
  // Describes the restore that a greeted server must finish before it admits the slot, for example
  // "reads checkpoint 7, 40 % done". Empty if the server admitted the slot.
  const std::string& busy_with() const { return busy_with_; }
  // True if `status` shows that another program answered instead of the previously greeted server.
  // While the server was down, another program may have taken over the address. `greeting`: the
  // call was a Hello.
  bool IsAnotherProgram(const absl::Status& status, bool greeting) const;
  // From now on, Hello fails if the server has no model. Before the job starts this is not an
  // error: a server that restarts after a Hello may lose the model, and the coordinator then
  // requests initialization again.
  void ExpectModel() { expects_model_ = true; }

  // Creates a Leave call. Ends lease renewals until the next greeting.
  std::unique_ptr<ClientCall> MakeLeave(absl::Duration timeout);

  // Creates a Renew call, which passes the reply to `take`.
  std::unique_ptr<ClientCall> MakeRenew(absl::Duration timeout,
                                        std::function<void(const RenewReply&)> take);

  // Calls RetryDeadline::Failed for a call that may be repeated. May switch to another address for
  // the next attempt.
  absl::StatusOr<absl::Duration> Failed(const absl::Status& failure);

  // Prefixes `status` with the server's name.
  absl::Status WithName(const absl::Status& status) const;

 private:
  // Bundles one address of the server with the stubs for it.
  struct Line {
    explicit Line(ServerEndpoint there)
        : endpoint(std::move(there)),
          stub(ParameterService::NewStub(endpoint.channel)),
          generic_stub(endpoint.channel) {}

    const ServerEndpoint endpoint;
    const std::unique_ptr<ParameterService::Stub> stub;
    grpc::GenericStub generic_stub;
  };
  std::shared_ptr<Line> line() const ABSL_LOCKS_EXCLUDED(mutex_);
  void MoveTo(const ServerEndpoint& endpoint) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status TakeHello(const HelloReply& reply);
  // Handles a server that restarted from a checkpoint or push log.
  absl::Status TakeRestored(const Restored& restored);
  void TakeSharedMemory(const HelloReply& reply);

  const int index_;
  const HelloRequest hello_;
  const BlockMap* const map_;
  RollbackAccounting* const accounting_;
  const std::function<void(const std::string& line)> log_;
  mutable Mutex mutex_;
  std::shared_ptr<Line> line_ ABSL_GUARDED_BY(mutex_);
  // True if the server moved from the first address.
  bool has_moved_ = false;
  // True if hello_'s shared memory offer may be sent to this address.
  bool may_share_ = false;
  RetryDeadline patience_;
  uint64_t server_incarnation_ = 0;
  Step start_clock_ = 0;
  Step last_step_ = 0;
  bool expects_model_ = false;
  bool has_lost_model_ = false;
  std::shared_ptr<const SharedValues> shared_values_;
  bool has_complained_ = false;
  std::string busy_with_;
  ServerLease lease_;
};

}  // namespace torchps
