#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/support/async_unary_call.h"
#include "proto/status_codec.h"

namespace torchps {

// One try of one call at one server, driven by the events of a completion queue. It has one
// operation in flight at a time, so every event with its tag is its own next one:
//
//   call.Start(&queue, tag);
//   for each event with that tag: if (call.Proceed(ok)) { use call.status(); }
//
// Not thread-safe: one thread polls the queue. Stays alive until Proceed() has returned true.
class ClientCall {
 public:
  virtual ~ClientCall() = default;

  virtual void Start(grpc::CompletionQueue* queue, void* tag) = 0;

  // The operation in flight has ended with `ok`. Begins the next one, or returns true: no event
  // will come any more, and status() is the outcome.
  virtual bool Proceed(bool ok) = 0;

  // Ends the call early; Proceed() is still to be called until it returns true.
  void Cancel() { context_.TryCancel(); }

  // REQUIRES: Proceed() has returned true.
  const absl::Status& status() const { return status_; }

 protected:
  explicit ClientCall(absl::Duration timeout) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }

  grpc::ClientContext context_;
  absl::Status status_;
};

// A call with one request and one reply. `Prepare` is what a generated stub's PrepareAsync...()
// needs: (context, queue) -> reader.
template <typename Reply>
class ClientUnaryCall final : public ClientCall {
 public:
  using Reader = std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>>;
  using Prepare = std::function<Reader(grpc::ClientContext*, grpc::CompletionQueue*)>;

  // `reply` is borrowed and holds the answer if the call succeeds.
  ClientUnaryCall(absl::Duration timeout, Prepare prepare, Reply* reply)
      : ClientCall(timeout), prepare_(std::move(prepare)), reply_(reply) {}

  void Start(grpc::CompletionQueue* queue, void* tag) override {
    reader_ = prepare_(&context_, queue);
    reader_->StartCall();
    reader_->Finish(reply_, &grpc_status_, tag);
  }

  bool Proceed(bool /*ok*/) override {
    status_ = FromGrpcStatus(grpc_status_);
    return true;
  }

 private:
  const Prepare prepare_;
  Reply* const reply_;
  Reader reader_;
  grpc::Status grpc_status_;
};

}  // namespace torchps
