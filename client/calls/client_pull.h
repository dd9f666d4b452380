#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "client/calls/client_call.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/parameter_service.pb.h"
#include "wire/frame_codec.h"

namespace torchps {

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

}  // namespace torchps
