#include "server/coordinator_service.h"

#include <utility>

#include "absl/status/status.h"

namespace torchps {

CoordinatorService::CoordinatorService(uint64_t seed, const Clock* clock)
    : clock_(clock), coordinator_(JobCoordinator::Options{seed}) {}

void CoordinatorService::Listen(grpc::ServerCompletionQueue* queue,
                                std::shared_ptr<const void> in_use) {
  Arm(queue, in_use, &Service::RequestJoin, &JobCoordinator::Join);
  Arm(queue, in_use, &Service::RequestAwaitStart, &JobCoordinator::AwaitStart);
  Arm(queue, in_use, &Service::RequestNextWork, &JobCoordinator::NextWork);
  Arm(queue, in_use, &Service::RequestRenewSlot, &JobCoordinator::RenewSlot);
  Arm(queue, in_use, &Service::RequestReportEvaluation, &JobCoordinator::ReportEvaluation);
  Arm(queue, in_use, &Service::RequestLeaveJob, &JobCoordinator::LeaveJob);
  Arm(queue, in_use, &Service::RequestGetJobStatus, &JobCoordinator::GetJobStatus);
}

void CoordinatorService::Tick() {
  Apply([](JobCoordinator& coordinator, absl::Duration now) { coordinator.Tick(now); });
}

void CoordinatorService::AbandonParked() {
  Apply([](JobCoordinator& coordinator, absl::Duration) {
    coordinator.AbandonParked(absl::UnavailableError("the coordinator is shutting down"));
  });
}

template <class Owner, class Request, class Response>
void CoordinatorService::Arm(grpc::ServerCompletionQueue* queue, std::shared_ptr<const void> in_use,
                             Acceptor<Owner, Request, Response> acceptor,
                             absl::StatusOr<Response> (JobCoordinator::*method)(const Request&,
                                                                                absl::Duration)) {
  using Call = UnaryCall<Request, Response>;
  Call::Listen(
      [this, queue, in_use, acceptor](grpc::ServerContext* context, Request* request,
                                      typename Call::Writer* writer, void* tag) {
        (service_.*acceptor)(context, request, writer, queue, queue, tag);
      },
      [this, method](const typename Call::Pointer& call) {
        absl::StatusOr<Response> response;
        Apply([&](JobCoordinator& coordinator, absl::Duration now) {
          response = (coordinator.*method)(call->request(), now);
        });
        call->Respond(response);
      });
}

template <class Owner, class Request, class Response>
void CoordinatorService::Arm(grpc::ServerCompletionQueue* queue, std::shared_ptr<const void> in_use,
                             Acceptor<Owner, Request, Response> acceptor,
                             JobCoordinator::ParkedCall (JobCoordinator::*method)(
                                 const Request&, absl::Duration, Reply<Response>)) {
  using Call = UnaryCall<Request, Response>;
  Call::Listen(
      [this, queue, in_use, acceptor](grpc::ServerContext* context, Request* request,
                                      typename Call::Writer* writer, void* tag) {
        (service_.*acceptor)(context, request, writer, queue, queue, tag);
      },
      [this, method](const typename Call::Pointer& call) {
        JobCoordinator::ParkedCall parked = 0;
        Apply([&](JobCoordinator& coordinator, absl::Duration now) {
          parked = (coordinator.*method)(
              call->request(), now,
              [call](const absl::StatusOr<Response>& response) { call->Respond(response); });
        });
        if (parked == 0) return;
        // Should it have been answered meanwhile, its number means nothing any more.
        call->OnCancel([this, parked] {
          Apply([parked](JobCoordinator& coordinator, absl::Duration) {
            coordinator.CancelParked(parked);
          });
        });
      });
}

void CoordinatorService::Apply(
    const std::function<void(JobCoordinator&, absl::Duration now)>& change) {
  std::vector<std::function<void()>> ready;
  {
    MutexLock lock(&mutex_);
    // Read under the lock, so that the coordinator's time never goes back.
    change(coordinator_, clock_->Now());
    ready = coordinator_.TakeReady();
  }
  for (const std::function<void()>& give : ready) give();
}

}  // namespace torchps
