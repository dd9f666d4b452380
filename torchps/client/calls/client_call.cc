#include "torchps/client/calls/client_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "torchps/common/check.h"

namespace torchps {

ClientPull::ClientPull(grpc::GenericStub* stub, const PullRequest& request, size_t expected_frames,
                       absl::Duration timeout, OnFrame on_frame)
    : ClientCall(timeout),
      stub_(stub),
      request_(request),
      expected_frames_(expected_frames),
      on_frame_(std::move(on_frame)) {}

void ClientPull::Begin(grpc::CompletionQueue* queue) {
  // The call's metadata is sent with the request, so starting the call does not produce an event.
  context_.set_initial_metadata_corked(true);
  stream_ = stub_->PrepareCall(&context_, "/torchps.ParameterService/Pull", queue);
  stream_->StartCall(/*tag=*/nullptr);
  grpc::ByteBuffer bytes;
  bool own_buffer;
  const grpc::Status written =
      grpc::SerializationTraits<PullRequest>::Serialize(request_, &bytes, &own_buffer);
  TPS_CHECK(written.ok(), "a PullRequest can be written");
  stream_->WriteLast(bytes, grpc::WriteOptions(), write_.Begin());
  stream_->Read(&frame_, read_.Begin());
}

void ClientPull::OnEnd(Operation& operation, bool ok) {
  if (&operation == &read_) {
    if (ok) {
      TakeFrame();
      stream_->Read(&frame_, read_.Begin());
    } else {
      stream_->Finish(&grpc_status_, finish_.Begin());
    }
  } else if (&operation == &finish_) {
    finished_ = true;
  }
  if (finished_ && !write_.in_flight()) Conclude(Outcome());
}

void ClientPull::TakeFrame() {
  if (!frame_status_.ok()) return;  // cancelled; drop later frames
  PullHeader header;
  FramePayload payload;
  frame_status_ = ParsePullFrame(frame_, &header, &payload);
  if (frame_status_.ok()) frame_status_ = on_frame_(header, payload);
  ++frames_;
  if (!frame_status_.ok()) Cancel();
}

absl::Status ClientPull::Outcome() const {
  if (!frame_status_.ok()) return frame_status_;
  const absl::Status status = FromGrpcStatus(grpc_status_);
  if (status.ok() && frames_ != expected_frames_) {
    return absl::InternalError(
        absl::StrCat("a pull was answered with ", frames_, " blocks; expected ", expected_frames_));
  }
  return status;
}

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
