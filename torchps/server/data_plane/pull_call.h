#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/async_stream.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/security/call_admission.h"
#include "torchps/server/data_plane/open_calls.h"
#include "torchps/server/data_plane/verified_connections.h"
#include "torchps/server/job/frame_admission.h"
#include "torchps/server/job/parameter_server.h"
#include "torchps/server/rpc/poller.h"
#include "torchps/transport/frame_codec.h"

namespace torchps {

// Serves one Pull: waits at the gate without a thread, then sends this server's blocks one at a
// time. Reads the next block when the previous one is sent and it is this pull's turn. So a pull
// holds memory for one block, taken from the pull budget, and pulls share the bandwidth. If the
// worker reads shared memory, the answer is one frame without a block.
//
// Owned by the pending operations and, while parked, by the continuation.
class PullCall final : public OpenPull, public std::enable_shared_from_this<PullCall> {
 public:
  // Receives one PullRequest and sends frames, both as bytes.
  using Writer = grpc::ServerAsyncWriter<grpc::ByteBuffer>;
  // ParameterService's RequestPull, bound to the service and the queue.
  using Acceptor = std::function<void(grpc::ServerContext*, grpc::ByteBuffer*, Writer*, void* tag)>;

  // Dependencies of the calls; they outlive the poller's queue.
  struct Services {
    ParameterServer* data_plane = nullptr;
    CallAdmission* admission = nullptr;
    OpenPulls* open = nullptr;
    VerifiedConnections* known = nullptr;
    Poller* poller = nullptr;
  };

  // Arms the queue for the server's lifetime.
  static void Listen(Acceptor acceptor, const Services& services);

  std::optional<absl::Duration> sending_since() override;
  void End() override;

 private:
  PullCall(Acceptor acceptor, const Services& services);

  void OnArrived(bool ok);
  void OnWritten(bool ok);
  void OnTurn(bool);
  void OnDone(bool ok);
  void OnFinished(bool) {}

  absl::Status Begin();
  absl::Status TakeVersions(const PullRequest& request);
  void Serve(const HostedJob::PullGrant& grant);
  // Sends the next block when the budget allows it.
  void SendNext();
  void SendBlock();
  // Sends one frame without a block. It tells the worker that the gate allows it to read the blocks
  // from shared memory.
  void SendShared();
  void Finish(const absl::Status& status);
  // Finishes a call that did not begin to send.
  void FinishUnlessServing(const absl::Status& status);

  const Acceptor acceptor_;
  const Services services_;
  ParameterServer* const server_;
  grpc::ServerContext context_;
  grpc::ByteBuffer request_;
  Writer writer_;
  CallTag<PullCall> arrived_tag_{&PullCall::OnArrived};
  CallTag<PullCall> written_tag_{&PullCall::OnWritten};
  CallTag<PullCall> turn_tag_{&PullCall::OnTurn};
  CallTag<PullCall> done_tag_{&PullCall::OnDone};
  CallTag<PullCall> finished_tag_{&PullCall::OnFinished};

  HostedJob* job_ = nullptr;
  // 0 until the call begins to send blocks.
  OpenPulls::Name open_name_ = 0;
  HostedJob::PullGrant grant_;
  bool shared_ = false;
  EncodingSpec::Kind encoding_ = EncodingSpec::FLOAT32;
  size_t next_block_ = 0;
  FrameAdmission blocks_may_go_;
  // The version of each block of this server that the worker already holds. Empty if the worker
  // named none.
  std::vector<Version> have_;

  Mutex mutex_;
  // The thread that sets this first decides if the call sends or finishes without sending.
  bool decided_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  HostedJob::ParkedId parked_ ABSL_GUARDED_BY(mutex_) = 0;
  // When gRPC began to send the current block.
  std::optional<absl::Duration> sending_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
