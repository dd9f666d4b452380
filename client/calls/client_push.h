#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "client/calls/client_call.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

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
