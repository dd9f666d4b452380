#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/frame_codec.h"
#include "proto/parameter_service.pb.h"
#include "worker/client_call.h"

namespace torchps {

// One try of one Pull: a request, then a stream of frames.
class ClientPull final : public ClientCall {
 public:
  // Takes a frame; an error ends the call with that status.
  using OnFrame = std::function<absl::Status(const PullHeader&, const FramePayload&)>;

  // `stub` is borrowed. An answer of another number of frames than `expected_frames` is an error.
  ClientPull(grpc::GenericStub* stub, const PullRequest& request, size_t expected_frames,
             absl::Duration timeout, OnFrame on_frame);

  void Start(grpc::CompletionQueue* queue, void* tag) override;
  bool Proceed(bool ok) override;

 private:
  enum class Phase { kAsking, kReading, kFinishing };

  void TakeFrame();

  grpc::GenericStub* const stub_;
  const PullRequest request_;
  const size_t expected_frames_;
  const OnFrame on_frame_;

  void* tag_ = nullptr;
  Phase phase_ = Phase::kAsking;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer frame_;
  size_t frames_ = 0;
  absl::Status frame_status_;
  grpc::Status grpc_status_;
};

}  // namespace torchps
