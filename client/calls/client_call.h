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

// Receives one event of a completion queue. The tag is the event's address, as a QueueEvent*.
class QueueEvent {
 public:
  // Called on the polling thread. May destroy the event.
  virtual void Happened(bool ok) = 0;

 protected:
  ~QueueEvent() = default;
};

// Makes one attempt of one call to one server, driven by completion queue events.
//
// Not thread-safe: all functions run on the polling thread. Must live until `done` was called.
class ClientCall {
 public:
  virtual ~ClientCall() = default;
  ClientCall(const ClientCall&) = delete;
  ClientCall& operator=(const ClientCall&) = delete;

  // Starts the call. `done` runs once after the last event, when status() is set. It may destroy
  // the call.
  void Start(grpc::CompletionQueue* queue, std::function<void()> done) {
    done_ = std::move(done);
    Begin(queue);
  }

  // Called when more data may be ready to send.
  virtual void MoreToSend() {}

  // Cancels the call. `done` still runs after the last event.
  void Cancel() { context_.TryCancel(); }

  // REQUIRES: `done` was called.
  const absl::Status& status() const { return status_; }

 protected:
  // Represents one kind of operation of the call. At most one operation of each kind is in flight.
  class Operation final : public QueueEvent {
   public:
    explicit Operation(ClientCall* call) : call_(call) {}

    // Returns the tag for an operation that begins now.
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
  // Called when `operation` ended with `ok`. Begins the next operation, or concludes the call.
  virtual void OnEnd(Operation& operation, bool ok) = 0;

  // Ends the call. The call must not be used after that. REQUIRES: no operation is in flight.
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

// Makes a call with one request and one reply. `Prepare` calls a generated stub's
// PrepareAsync...(): (context, queue) -> reader.
template <typename Reply>
class ClientUnaryCall final : public ClientCall {
 public:
  using Reader = std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>>;
  using Prepare = std::function<Reader(grpc::ClientContext*, grpc::CompletionQueue*)>;
  using Take = std::function<absl::Status(const Reply&)>;

  // Passes an OK reply to `take`; the status that `take` returns is the call's status.
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
