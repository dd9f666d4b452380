#include "worker/client_push.h"

#include <utility>

#include "common/check.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace torchps {

ClientPush::ClientPush(grpc::GenericStub* stub, std::vector<Frame> frames,
                       std::shared_ptr<const void> keep_alive, absl::Duration timeout,
                       PushReply* reply)
    : ClientCall(timeout),
      stub_(stub),
      frames_(std::move(frames)),
      keep_alive_(std::move(keep_alive)),
      reply_(reply) {
  TPS_CHECK(!frames_.empty(), "a push without a frame");
}

void ClientPush::Start(grpc::CompletionQueue* queue, void* tag) {
  tag_ = tag;
  // The call's metadata leaves together with the first frame; so starting makes no event.
  context_.set_initial_metadata_corked(true);
  stream_ = stub_->PrepareCall(&context_, "/torchps.ParameterService/Push", queue);
  stream_->StartCall(tag_);
  WriteNext();
}

void ClientPush::WriteNext() {
  const Frame& frame = frames_[written_++];
  const grpc::ByteBuffer bytes = EncodePushFrame(frame.header, frame.payload, keep_alive_);
  if (written_ == frames_.size()) {
    stream_->WriteLast(bytes, grpc::WriteOptions(), tag_);
  } else {
    stream_->Write(bytes, tag_);
  }
}

bool ClientPush::Proceed(bool ok) {
  switch (phase_) {
    case Phase::kWriting:
      if (ok && written_ < frames_.size()) {
        WriteNext();
        return false;
      }
      if (ok) {
        phase_ = Phase::kReading;
        stream_->Read(&reply_bytes_, tag_);
        return false;
      }
      break;  // the call has ended before all was sent; its status says why
    case Phase::kReading:
      has_reply_ = ok;
      break;
    case Phase::kFinishing:
      return Conclude();
  }
  phase_ = Phase::kFinishing;
  stream_->Finish(&grpc_status_, tag_);
  return false;
}

bool ClientPush::Conclude() {
  status_ = FromGrpcStatus(grpc_status_);
  if (!status_.ok()) return true;
  if (!has_reply_ ||
      !grpc::SerializationTraits<PushReply>::Deserialize(&reply_bytes_, reply_).ok()) {
    status_ = absl::InternalError("a push was answered without a readable reply");
  }
  return true;
}

}  // namespace torchps
