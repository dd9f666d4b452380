#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/calls/client_call.h"
#include "client/calls/retry_deadline.h"
#include "client/calls/server_channel.h"
#include "client/rollback_accounting.h"
#include "client/server_lease.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/parameter_service.grpc.pb.h"
#include "shm/shared_values.h"

namespace torchps {

// One parameter server as one slot sees it: where it is, whether and in which of its lives it has
// been greeted, how patient to be with it.
//
// A server that is silent may have gone to another address: where its endpoint has an
// AddressResolver, it is followed there, with the same patience, and greeted as one that was
// restarted.
//
// Everything happens on the thread that polls the CallLoop, but for endpoint(), index(), stub() and
// lease(), which are thread-safe, and start_clock() and last_step(), which may be asked for between
// rounds.
class RemoteServer {
 public:
  // `hello` is what the server is greeted with; its server_index is filled in here. An offer of
  // shared memory in it is made only where the server is on this machine; `map` is needed to read
  // what the server offers in return. What a restarted server has lost is entered in `books`. Both
  // are borrowed.
  RemoteServer(ServerEndpoint endpoint, HelloRequest hello, const BlockMap* map,
               RollbackAccounting* accounting, RetryDeadline::Options patience);

  // Where it is spoken to now.
  ServerEndpoint endpoint() const { return line()->endpoint; }
  int index() const { return index_; }
  RetryDeadline& patience() { return patience_; }
  // For Push and Pull, whose frames are bytes; for a call that begins at once.
  grpc::GenericStub* generic_stub() { return &line()->generic_stub; }
  // For all others.
  std::shared_ptr<ParameterService::Stub> stub() const;
  // What there is to renew.
  ServerLease& lease() { return lease_; }

  // Of the last greeting; 0 before it.
  uint64_t server_incarnation() const { return server_incarnation_; }
  // The clock to start from here: the larger of the server's floor and this slot's last step, as
  // the last greeting told them.
  Step start_clock() const { return start_clock_; }
  // The slot's last step that a block there has seen, of any process, as that greeting told.
  Step last_step() const { return last_step_; }
  // Where to read this server's values; then it also takes pushes from the memory that Hello
  // offers. Null where payloads go through the network. Valid until the next greeting, for whoever
  // holds it beyond that.
  const std::shared_ptr<const SharedValues>& shared_values() const { return shared_values_; }

  // A Hello, whose answer is remembered. FAILED_PRECONDITION: ExpectModel() was called, and the
  // server has none any more.
  std::unique_ptr<ClientCall> MakeHello();
  // What the server is at, which has answered the last Hello but has not let the slot in yet:
  // "reads checkpoint 7, 40 % done". Empty: it has.
  const std::string& busy_with() const { return busy_with_; }
  // Whether a call that ended so, a greeting or not, was answered by somebody else than the server
  // that was greeted here before: its address may have gone to another program while it was away.
  bool IsStranger(const absl::Status& status, bool greeting) const;
  // From here on the server is to have the model. Before the start it may lose it again with its
  // process, also after a Hello has told of it: then the coordinator has it initialised once more.
  void ExpectModel() { expects_model_ = true; }

  // A Leave. From here on there is nothing to renew, until the next greeting.
  std::unique_ptr<ClientCall> MakeLeave(absl::Duration timeout);

  // A Renew; `take` gets how far the server is.
  std::unique_ptr<ClientCall> MakeRenew(absl::Duration timeout,
                                        std::function<void(const RenewReply&)> take);

  // RetryDeadline::Failed, which every call that may be made again goes through, and after it the
  // next one may go to another address.
  absl::StatusOr<absl::Duration> Failed(const absl::Status& failure);

  // `status` with the server's name in front.
  absl::Status WithName(const absl::Status& status) const;

 private:
  // One address of the server, and what speaks to it.
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
  // The server has begun anew from what it had kept.
  absl::Status TakeRestored(const Restored& restored);
  void TakeSharedMemory(const HelloReply& reply);

  const int index_;
  const HelloRequest hello_;
  const BlockMap* const map_;
  RollbackAccounting* const accounting_;
  const std::function<void(const std::string& line)> log_;
  mutable Mutex mutex_;
  std::shared_ptr<Line> line_ ABSL_GUARDED_BY(mutex_);
  // It is not where it was looked for first.
  bool has_moved_ = false;
  // The offer of shared memory in hello_ is for it.
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
