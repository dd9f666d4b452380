#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/grpcpp.h"
#include "torchps/common/mutex.h"
#include "torchps/security/call_admission.h"
#include "torchps/server/rpc/listening_sockets.h"
#include "torchps/server/rpc/poller.h"
#include "torchps/transport/status_codec.h"

namespace torchps {

// One unary call on the server, answered now or later.
//
// ListenFor arms a completion queue for one method while the server lives. Each arriving call arms
// the next one. If the caller is admitted, the call then runs the handler on the queue's thread.
// The handler answers with Respond(), at once or, for a parked call, later from any thread. A
// parked call does not hold a thread. If the peer disconnects or the server shuts down first, the
// call answers itself with CANCELLED and runs the on-cancel hook. Respond() does nothing after
// that.
//
// Thread-safe. Owned by the pending operations and by the handler that may still respond.
template <class Request, class Reply>
class UnaryCall final : public std::enable_shared_from_this<UnaryCall<Request, Reply>> {
 public:
  using Pointer = std::shared_ptr<UnaryCall>;
  using Writer = grpc::ServerAsyncResponseWriter<Reply>;
  // Service::RequestX, bound to the service and the queue.
  using Acceptor = std::function<void(grpc::ServerContext*, Request*, Writer*, void* tag)>;
  using Handler = std::function<void(const Pointer& call)>;

  // `admission` outlives the queue.
  static void Listen(CallAdmission* admission, Acceptor acceptor, Handler handler) {
    auto call = std::shared_ptr<UnaryCall>(
        new UnaryCall(admission, std::move(acceptor), std::move(handler)));
    call->context_.AsyncNotifyWhenDone(call->done_tag_.Arm(call));
    call->acceptor_(&call->context_, &call->request_, &call->writer_, call->arrived_tag_.Arm(call));
  }

  const Request& request() const { return request_; }
  // Moves the request out, for a handler that keeps it.
  Request TakeRequest() { return std::move(request_); }

  // Returns the name of the call's connection (ConnectionName).
  std::string connection() const { return ConnectionName(context_); }

  // Returns OK if the caller's role permits the request name `request` (torchps/security/roles.h).
  // Does not check the slot. Handlers use this if the permission depends on the request's content.
  absl::Status Admit(absl::string_view request) {
    return admission_->Admit(context_, request, std::nullopt);
  }

  // Runs `hook` if the call is cancelled before it is answered. Runs it now if the call was already
  // cancelled.
  void OnCancel(std::function<void()> hook) {
    bool run_now = false;
    {
      MutexLock lock(&mutex_);
      if (cancelled_) {
        run_now = true;
      } else {
        on_cancel_ = std::move(hook);
      }
    }
    if (run_now) hook();
  }

  // Answers the call. Does nothing if it was already answered.
  void Respond(const absl::StatusOr<Reply>& reply) {
    MutexLock lock(&mutex_);
    if (answered_) return;
    answered_ = true;
    on_cancel_ = nullptr;
    void* const tag = finished_tag_.Arm(this->shared_from_this());
    if (reply.ok()) {
      writer_.Finish(*reply, grpc::Status::OK, tag);
    } else {
      writer_.FinishWithError(ToGrpcStatus(reply.status()), tag);
    }
  }

 private:
  UnaryCall(CallAdmission* admission, Acceptor acceptor, Handler handler)
      : admission_(admission),
        acceptor_(std::move(acceptor)),
        handler_(std::move(handler)),
        writer_(&context_) {}

  void OnArrived(bool ok) {
    if (!ok) {
      // The queue is shutting down. gRPC does not report the end of a call that never began.
      done_tag_.Disarm();
      return;
    }
    Listen(admission_, acceptor_, handler_);
    const absl::Status admitted = admission_->Admit(context_, request_);
    if (!admitted.ok()) {
      Respond(admitted);
      return;
    }
    handler_(this->shared_from_this());
  }

  void OnDone(bool) {
    if (!context_.IsCancelled()) return;
    std::function<void()> hook;
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
      std::swap(hook, on_cancel_);
    }
    if (hook) hook();
    Respond(absl::CancelledError("the caller went away"));
  }

  void OnFinished(bool) {}

  CallAdmission* const admission_;
  const Acceptor acceptor_;
  const Handler handler_;
  grpc::ServerContext context_;
  Request request_;
  Writer writer_;
  CallTag<UnaryCall> arrived_tag_{&UnaryCall::OnArrived};
  CallTag<UnaryCall> done_tag_{&UnaryCall::OnDone};
  CallTag<UnaryCall> finished_tag_{&UnaryCall::OnFinished};

  Mutex mutex_;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> on_cancel_ ABSL_GUARDED_BY(mutex_);
};

// Type of a RequestX method of a generated gRPC service. `Owner` is the base class that declares
// the method.
template <class Owner, class Request, class Reply>
using RequestMethod = void (Owner::*)(grpc::ServerContext*, Request*,
                                      grpc::ServerAsyncResponseWriter<Reply>*,
                                      grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*);

// Arms the poller's queue with one method of `service`. `service` and `admission` outlive the
// queue.
template <class Owner, class Request, class Reply>
void ListenFor(Poller* poller, CallAdmission* admission, std::common_type_t<Owner>* service,
               RequestMethod<Owner, Request, Reply> method,
               typename UnaryCall<Request, Reply>::Handler handler) {
  using Call = UnaryCall<Request, Reply>;
  Call::Listen(
      admission,
      [service, method, queue = poller->queue(), in_use = poller->Use()](
          grpc::ServerContext* context, Request* request, typename Call::Writer* writer,
          void* tag) { (service->*method)(context, request, writer, queue, queue, tag); },
      std::move(handler));
}

}  // namespace torchps
