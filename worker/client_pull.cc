#include "worker/client_pull.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace torchps {

ClientPull::ClientPull(grpc::GenericStub* stub, const PullRequest& request, size_t expected_frames,
                       absl::Duration timeout, OnFrame on_frame)
    : ClientCall(timeout),
      stub_(stub),
      request_(request),
      expected_frames_(expected_frames),
      on_frame_(std::move(on_frame)) {}

void ClientPull::Start(grpc::CompletionQueue* queue, void* tag) {
  tag_ = tag;
  context_.set_initial_metadata_corked(true);
  stream_ = stub_->PrepareCall(&context_, "/torchps.ParameterService/Pull", queue);
  stream_->StartCall(tag_);
  grpc::ByteBuffer bytes;
  bool own_buffer;
  const grpc::Status written =
      grpc::SerializationTraits<PullRequest>::Serialize(request_, &bytes, &own_buffer);
  TPS_CHECK(written.ok(), "a PullRequest of six numbers can be written");
  stream_->WriteLast(bytes, grpc::WriteOptions(), tag_);
}

bool ClientPull::Proceed(bool ok) {
  if (phase_ == Phase::kFinishing) {
    status_ = frame_status_.ok() ? FromGrpcStatus(grpc_status_) : frame_status_;
    if (status_.ok() && frames_ != expected_frames_) {
      status_ = absl::InternalError(absl::StrCat("a pull was answered with ", frames_,
                                                 " blocks; expected ", expected_frames_));
    }
    return true;
  }
  if (phase_ == Phase::kReading && ok) TakeFrame();
  if (ok) {
    phase_ = Phase::kReading;
    stream_->Read(&frame_, tag_);
  } else {
    phase_ = Phase::kFinishing;
    stream_->Finish(&grpc_status_, tag_);
  }
  return false;
}

void ClientPull::TakeFrame() {
  if (!frame_status_.ok()) return;  // cancelled; what still comes in is dropped
  PullHeader header;
  FramePayload payload;
  frame_status_ = ParsePullFrame(frame_, &header, &payload);
  if (frame_status_.ok()) frame_status_ = on_frame_(header, payload);
  ++frames_;
  if (!frame_status_.ok()) Cancel();
}

}  // namespace torchps
