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

// One try of one Push: a stream of frames, sent as they become ready, then the verdicts. One write
// is in flight at a time, as gRPC asks; it ends when HTTP/2 has taken the frame.
class ClientPush final : public ClientCall {
 public:
  struct Frame {
    grpc::ByteBuffer bytes;
    // None follows.
    bool last = false;
  };
  // The frame number `index`, counted from 0, or nothing where it is not ready yet; asked for in
  // order, each frame until it is there.
  using NextFrame = std::function<std::optional<Frame>(size_t index)>;
  // Takes the answer of a push that succeeded; an error becomes the call's.
  using TakeReply = std::function<absl::Status(const PushReply&)>;

  // `stub` is borrowed. REQUIRES: the first frame is ready when the call starts.
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
  // Nothing more is to be written: all was, or the call has ended before.
  bool written_out_ = false;
  bool has_reply_ = false;
  bool finished_ = false;
  grpc::ByteBuffer reply_bytes_;
  grpc::Status grpc_status_;
};

}  // namespace torchps
