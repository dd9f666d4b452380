#include "client/calls/client_push.h"

#include <utility>

#include "common/check.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace torchps {

ClientPush::ClientPush(grpc::GenericStub* stub, absl::Duration timeout, NextFrame next_frame,
                       TakeReply take_reply)
    : ClientCall(timeout),
      stub_(stub),
      next_frame_(std::move(next_frame)),
      take_reply_(std::move(take_reply)) {}

void ClientPush::Begin(grpc::CompletionQueue* queue) {
  // The call's metadata is sent with the first frame, so starting the call does not produce an
  // event.
  context_.set_initial_metadata_corked(true);
  stream_ = stub_->PrepareCall(&context_, "/torchps.ParameterService/Push", queue);
  stream_->StartCall(/*tag=*/nullptr);
  MoreToSend();
  TPS_CHECK(written_ > 0, "a push begins with a frame");
  // Reads from the start, because a server may refuse the push while the next frame is not ready
  // yet.
  stream_->Read(&reply_bytes_, read_.Begin());
}

void ClientPush::MoreToSend() {
  if (written_out_ || write_.in_flight()) return;
  const std::optional<Frame> frame = next_frame_(written_);
  if (!frame.has_value()) return;
  ++written_;
  if (frame->last) {
    written_out_ = true;
    stream_->WriteLast(frame->bytes, grpc::WriteOptions(), write_.Begin());
  } else {
    stream_->Write(frame->bytes, write_.Begin());
  }
}

void ClientPush::OnEnd(Operation& operation, bool ok) {
  if (&operation == &write_) {
    // After a failed write the call ends, and the status reports the reason.
    if (!ok) written_out_ = true;
    MoreToSend();
  } else if (&operation == &read_) {
    has_reply_ = ok;
    written_out_ = true;
    stream_->Finish(&grpc_status_, finish_.Begin());
  } else {
    finished_ = true;
  }
  if (finished_ && !write_.in_flight()) Conclude(Outcome());
}

absl::Status ClientPush::Outcome() {
  const absl::Status status = FromGrpcStatus(grpc_status_);
  if (!status.ok()) return status;
  PushReply reply;
  if (!has_reply_ ||
      !grpc::SerializationTraits<PushReply>::Deserialize(&reply_bytes_, &reply).ok()) {
    return absl::InternalError("a push was answered without a readable reply");
  }
  return take_reply_(reply);
}

}  // namespace torchps
