#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/async_unary_call.h"
#include "grpcpp/support/byte_buffer.h"
#include "torchps/common/check.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/transport/frame_codec.h"
#include "torchps/transport/status_codec.h"

namespace torchps {

// Receives one event of a completion queue. The event's tag is the address of this object, as a
// QueueEvent*.
class QueueEvent {
 public:
  // Called on the polling thread. May destroy this object.
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
  // Represents one kind of operation of the call: write, read or finish. At most one operation of
  // each kind is in flight.
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

// Makes one attempt of a Pull: one request, then a stream of frames.
class ClientPull final : public ClientCall {
 public:
  // Receives one frame. An error ends the call with that status.
  using OnFrame = std::function<absl::Status(const PullHeader&, const FramePayload&)>;

  // Borrows `stub`. The call fails if the number of frames differs from `expected_frames`.
  ClientPull(grpc::GenericStub* stub, const PullRequest& request, size_t expected_frames,
             absl::Duration timeout, OnFrame on_frame);

 private:
  void Begin(grpc::CompletionQueue* queue) override;
  void OnEnd(Operation& operation, bool ok) override;

  void TakeFrame();
  absl::Status Outcome() const;

  grpc::GenericStub* const stub_;
  const PullRequest request_;
  const size_t expected_frames_;
  const OnFrame on_frame_;

  Operation write_{this};
  Operation read_{this};
  Operation finish_{this};
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer frame_;
  size_t frames_ = 0;
  absl::Status frame_status_;
  bool finished_ = false;
  grpc::Status grpc_status_;
};

// Makes one attempt of a Push: sends a stream of frames as they become ready, then reads the
// verdicts. One write is in flight at a time, as gRPC requires. The write ends when HTTP/2 accepts
// the frame.
class ClientPush final : public ClientCall {
 public:
  struct Frame {
    grpc::ByteBuffer bytes;
    // True for the last frame.
    bool last = false;
  };
  // Returns frame `index` (from 0), or nullopt if it is not ready yet. Called in order, repeatedly
  // until the frame is ready.
  using NextFrame = std::function<std::optional<Frame>(size_t index)>;
  // Receives the reply of a successful push. An error becomes the call's status.
  using TakeReply = std::function<absl::Status(const PushReply&)>;

  // Borrows `stub`. REQUIRES: the first frame is ready when the call starts.
  ClientPush(grpc::GenericStub* stub, absl::Duration timeout, NextFrame next_frame,
             TakeReply take_reply);

  void MoreToSend() override;

 private:
  void Begin(grpc::CompletionQueue* queue) override;
  void OnEnd(Operation& operation, bool ok) override;

  absl::Status Outcome();

  grpc::GenericStub* const stub_;
  const NextFrame next_frame_;
  const TakeReply take_reply_;

  Operation write_{this};
  Operation read_{this};
  Operation finish_{this};
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  size_t written_ = 0;
  // True if all frames are written or the call ended earlier.
  bool written_out_ = false;
  bool has_reply_ = false;
  bool finished_ = false;
  grpc::ByteBuffer reply_bytes_;
  grpc::Status grpc_status_;
};

}  // namespace torchps
