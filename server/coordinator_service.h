#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/job_coordinator.h"
#include "server/replies.h"
#include "server/rpc/unary_call.h"

namespace torchps {

// The gRPC shell of a JobCoordinator: decode, lock, call one method, unlock, answer. A parked call
// holds no thread, and is dropped when its caller goes away.
//
// Thread-safe. Outlives the completion queues it listens on; `clock` outlives it.
class CoordinatorService {
 public:
  CoordinatorService(uint64_t seed, const Clock* clock);

  // To be registered with the ServerBuilder.
  grpc::Service* service() { return &service_; }

  // Arms one completion queue with every method, for the server's whole life. Every call holds a
  // reference to `in_use` until it has ended and will touch the queue no more.
  void Listen(grpc::ServerCompletionQueue* queue, std::shared_ptr<const void> in_use);

  // Lets slots die whose lease has run out. To be called now and then.
  void Tick();

  // Answers what is parked with UNAVAILABLE, before the server shuts down.
  void AbandonParked();

 private:
  using Service = Coordinator::AsyncService;

  // RequestX of the generated service.
  template <class Owner, class Request, class Response>
  using Acceptor = void (Owner::*)(grpc::ServerContext*, Request*,
                                   grpc::ServerAsyncResponseWriter<Response>*,
                                   grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*);

  // Arms `queue` with a method that answers at once, or with one that may park.
  template <class Owner, class Request, class Response>
  void Arm(grpc::ServerCompletionQueue* queue, std::shared_ptr<const void> in_use,
           Acceptor<Owner, Request, Response> acceptor,
           absl::StatusOr<Response> (JobCoordinator::*method)(const Request&, absl::Duration));
  template <class Owner, class Request, class Response>
  void Arm(grpc::ServerCompletionQueue* queue, std::shared_ptr<const void> in_use,
           Acceptor<Owner, Request, Response> acceptor,
           JobCoordinator::ParkedCall (JobCoordinator::*method)(const Request&, absl::Duration,
                                                                Reply<Response>));

  // Runs `change` on the coordinator under the lock, then gives the answers that have become due.
  void Apply(const std::function<void(JobCoordinator&, absl::Duration now)>& change)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const Clock* const clock_;
  Service service_;
  Mutex mutex_;
  JobCoordinator coordinator_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
