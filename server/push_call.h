#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/async_stream.h"
#include "proto/frame_codec.h"
#include "proto/parameter_service.pb.h"
#include "server/parameter_server.h"
#include "server/rpc/call_tag.h"

namespace torchps {

// One Push on the server: reads frames and hands each to the job on the queue's thread, so that a
// block is applied while it is still in cache; then answers, in SYNC when the round is complete.
//
// Owned by its pending operations and, while parked, by its continuation. The frames of one call
// are handled one after the other; Respond may come from any thread.
class PushCall final : public std::enable_shared_from_this<PushCall> {
 public:
  // Frames come in, one PushReply goes out, both as bytes.
  using Reader = grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer>;
  // ParameterService's RequestPush, bound to the service and the queue.
  using Acceptor = std::function<void(grpc::ServerContext*, Reader*, void* tag)>;

  // Arms the queue for the server's whole life. `server` outlives the queue.
  static void Listen(Acceptor acceptor, ParameterServer* server);

 private:
  PushCall(Acceptor acceptor, ParameterServer* server);

  void OnArrived(bool ok);
  void OnFrame(bool ok);
  void OnDone(bool ok);
  void OnFinished(bool) {}

  absl::Status HandleFrame();
  void ReadNext();
  void EndOfFrames();
  void Respond(const absl::StatusOr<PushReply>& reply);

  const Acceptor acceptor_;
  ParameterServer* const server_;
  grpc::ServerContext context_;
  Reader reader_;
  grpc::ByteBuffer frame_;
  CallTag<PushCall> arrived_tag_{&PushCall::OnArrived};
  CallTag<PushCall> frame_tag_{&PushCall::OnFrame};
  CallTag<PushCall> done_tag_{&PushCall::OnDone};
  CallTag<PushCall> finished_tag_{&PushCall::OnFinished};

  // Of the first frame; all others must have the same name.
  PushHeader name_;
  uint32_t frames_ = 0;
  uint64_t blocks_ = 0;
  HostedJob* job_ = nullptr;

  Mutex mutex_;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  HostedJob::ParkedId parked_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
