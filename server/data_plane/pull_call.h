#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/mutex.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/async_stream.h"
#include "proto/parameter_service.pb.h"
#include "security/call_admission.h"
#include "server/data_plane/open_pulls.h"
#include "server/data_plane/verified_connections.h"
#include "server/job/frame_admission.h"
#include "server/job/parameter_server.h"
#include "server/rpc/call_tag.h"
#include "server/rpc/poller.h"
#include "wire/frame_codec.h"

namespace torchps {

// One Pull on the server: waits at the gate without a thread, then sends this server's blocks one
// at a time; the next one is read when the last one has left and this pull's turn has come, so a
// pull holds one block's memory, taken from the server's budget, and pulls that can send share
// alike. Where the worker reads shared memory, one frame without a block is the answer.
//
// Owned by its pending operations and, while parked, by its continuation.
class PullCall final : public OpenPull, public std::enable_shared_from_this<PullCall> {
 public:
  // One PullRequest comes in, frames go out, both as bytes.
  using Writer = grpc::ServerAsyncWriter<grpc::ByteBuffer>;
  // ParameterService's RequestPull, bound to the service and the queue.
  using Acceptor = std::function<void(grpc::ServerContext*, grpc::ByteBuffer*, Writer*, void* tag)>;

  // What the calls are made of; outlives the queue, which is the poller's.
  struct Services {
    ParameterServer* data_plane = nullptr;
    CallAdmission* admission = nullptr;
    OpenPulls* open = nullptr;
    VerifiedConnections* known = nullptr;
    Poller* poller = nullptr;
  };

  // Arms the queue for the server's whole life.
  static void Listen(Acceptor acceptor, const Services& services);

  absl::optional<absl::Duration> sending_since() override;
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
  // Sends the next block as soon as it may go.
  void SendNext();
  void SendBlock();
  // Instead of all blocks one frame: they may be read from shared memory now.
  void SendShared();
  void Finish(const absl::Status& status);
  // Finishes a call that has not begun to send.
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
  // 0 until it sends.
  OpenPulls::Name open_name_ = 0;
  HostedJob::PullGrant grant_;
  bool shared_ = false;
  EncodingSpec::Kind encoding_ = EncodingSpec::FLOAT32;
  size_t next_block_ = 0;
  FrameAdmission blocks_may_go_;
  // By owned block, what the worker has in this life of the server; empty: nothing.
  std::vector<Version> have_;

  // A call is sending or has been finished, never both at once: the thread that sets this first
  // goes on.
  Mutex mutex_;
  bool decided_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  HostedJob::ParkedId parked_ ABSL_GUARDED_BY(mutex_) = 0;
  // gRPC is sending a block.
  absl::optional<absl::Duration> sending_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
