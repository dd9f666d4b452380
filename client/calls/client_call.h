#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/support/async_unary_call.h"
#include "wire/status_codec.h"

namespace torchps {

// What a completion queue tells of. Its address, as a QueueEvent*, is the tag.
class QueueEvent {
 public:
  // On the thread that polls the queue. May destroy the event.
  virtual void Happened(bool ok) = 0;

 protected:
  ~QueueEvent() = default;
};

// One try of one call at one server, driven by the events of a completion queue.
//
// Not thread-safe: everything happens on the thread that polls the queue. Stays alive until `done`
// has been called.
class ClientCall {
 public:
  virtual ~ClientCall() = default;
  ClientCall(const ClientCall&) = delete;
  ClientCall& operator=(const ClientCall&) = delete;

  // Begins the call. `done` runs once, after its last event, when status() is the outcome; it may
  // destroy the call.
  void Start(grpc::CompletionQueue* queue, std::function<void()> done) {
    done_ = std::move(done);
    Begin(queue);
  }

  // There may be something to send that was not there before.
  virtual void MoreToSend() {}

  // Ends the call early; `done` still runs when its last event has come.
  void Cancel() { context_.TryCancel(); }

  // REQUIRES: `done` has been called.
  const absl::Status& status() const { return status_; }

 protected:
  // One kind of operation of the call, at most one of which is in flight.
  class Operation final : public QueueEvent {
   public:
    explicit Operation(ClientCall* call) : call_(call) {}

    // The tag for an operation that begins now.
    void* Begin() {
      TPS_CHECK(!in_flight_, "a second operation of one kind");
      in_flight_ = true;
      return static_cast<QueueEvent*>(this);
    }
    bool in_flight() const { return in_flight_; }

    void Happened(bool ok) override {
      in_flight_ = false;
      call_->OnEnd(*this, ok);
    }

   private:
    ClientCall* const call_;
    bool in_flight_ = false;
  };

  explicit ClientCall(absl::Duration timeout) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }

  virtual void Begin(grpc::CompletionQueue* queue) = 0;
  // `operation` has ended with `ok`. Begins what follows, or concludes.
  virtual void OnEnd(Operation& operation, bool ok) = 0;

  // The call is over. REQUIRES: no operation is in flight. Nothing of the call may be touched
  // afterwards.
  void Conclude(absl::Status status) {
    status_ = std::move(status);
    const std::function<void()> done = std::move(done_);
    done();
  }

  grpc::ClientContext context_;

 private:
  std::function<void()> done_;
  absl::Status status_;
};

// A call with one request and one reply. `Prepare` is what a generated stub's PrepareAsync...()
// needs: (context, queue) -> reader.
template <typename Reply>
class ClientUnaryCall final : public ClientCall {
 public:
  using Reader = std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>>;
  using Prepare = std::function<Reader(grpc::ClientContext*, grpc::CompletionQueue*)>;
  using Take = std::function<absl::Status(const Reply&)>;

  // An OK reply is given to `take`, whose status is then the call's.
  ClientUnaryCall(absl::Duration timeout, Prepare prepare, Take take)
      : ClientCall(timeout), prepare_(std::move(prepare)), take_(std::move(take)) {}

 private:
  void Begin(grpc::CompletionQueue* queue) override {
    reader_ = prepare_(&context_, queue);
    reader_->StartCall();
    reader_->Finish(&reply_, &grpc_status_, finish_.Begin());
  }

  void OnEnd(Operation& /*operation*/, bool /*ok*/) override {
    const absl::Status status = FromGrpcStatus(grpc_status_);
    Conclude(status.ok() ? take_(reply_) : status);
  }

  const Prepare prepare_;
  const Take take_;
  Operation finish_{this};
  Reader reader_;
  Reply reply_;
  grpc::Status grpc_status_;
};

}  // namespace torchps
