#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/frame_codec.h"
#include "proto/parameter_service.pb.h"
#include "worker/client_call.h"

namespace torchps {

// One try of one Push: a stream of frames whose payloads are borrowed, then the verdicts.
class ClientPush final : public ClientCall {
 public:
  struct Frame {
    PushHeader header;
    // Sent as it lies there; has to stay so until `keep_alive` is released.
    absl::Span<const float> payload;
  };

  // `stub` and `reply` are borrowed; `reply` holds the answer if the call succeeds. gRPC's
  // references to the payloads each hold `keep_alive`. REQUIRES: at least one frame.
  ClientPush(grpc::GenericStub* stub, std::vector<Frame> frames,
             std::shared_ptr<const void> keep_alive, absl::Duration timeout, PushReply* reply);

  void Start(grpc::CompletionQueue* queue, void* tag) override;
  bool Proceed(bool ok) override;

 private:
  enum class Phase { kWriting, kReading, kFinishing };

  void WriteNext();
  bool Conclude();

  grpc::GenericStub* const stub_;
  const std::vector<Frame> frames_;
  const std::shared_ptr<const void> keep_alive_;
  PushReply* const reply_;

  void* tag_ = nullptr;
  Phase phase_ = Phase::kWriting;
  size_t written_ = 0;
  bool has_reply_ = false;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer reply_bytes_;
  grpc::Status grpc_status_;
};

}  // namespace torchps
