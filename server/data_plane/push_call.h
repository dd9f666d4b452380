#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/async_stream.h"
#include "proto/parameter_service.pb.h"
#include "security/call_admission.h"
#include "server/data_plane/open_pushes.h"
#include "server/data_plane/verified_connections.h"
#include "server/job/frame_admission.h"
#include "server/job/parameter_server.h"
#include "server/parked/byte_budget.h"
#include "server/rpc/call_tag.h"
#include "wire/frame_codec.h"

namespace torchps {

// One Push on the server: reads frames and hands each to the job on the queue's thread, so that a
// block is applied while it is still in cache; then answers, in SYNC when the round is complete.
//
// A frame is read only when FrameAdmission lets it in; while one is being applied the next one is
// already on its way, so receiving and applying overlap. The frames of one call are handled one
// after the other, and none after one that was refused.
//
// On a connection on which no live process of the job has spoken (VerifiedConnections) the first
// frame is to be of such a process. It is read by a share of a small budget of its own, if there is
// one at once; otherwise the call is ABORTED, and its worker says Hello there. So whoever holds
// connections and says nothing takes nothing that workers' frames need.
//
// Owned by its pending operations and, while it is parked or stands in line, by its continuation.
class PushCall final : public OpenPush, public std::enable_shared_from_this<PushCall> {
 public:
  // Frames come in, one PushReply goes out, both as bytes.
  using Reader = grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer>;
  // ParameterService's RequestPush, bound to the service and the queue.
  using Acceptor = std::function<void(grpc::ServerContext*, Reader*, void* tag)>;

  // What the calls are made of; outlives the queue.
  struct Services {
    ParameterServer* data_plane = nullptr;
    CallAdmission* admission = nullptr;
    OpenPushes* open = nullptr;
    VerifiedConnections* known = nullptr;
  };

  // Arms the queue for the server's whole life.
  static void Listen(Acceptor acceptor, const Services& services);

  State Describe() override;
  bool MoveToStalledBudget() override;
  void End(const absl::Status& status) override;

 private:
  PushCall(Acceptor acceptor, const Services& services);

  void OnArrived(bool ok);
  void OnFrame(bool ok);
  void OnDone(bool ok);
  void OnFinished(bool) {}

  // Reads the next frame as soon as it may come.
  void AwaitFrame();
  // Reads the first frame on a connection that is not known, or refuses to.
  void ReadUnauthenticated();
  // By the share that was taken from `budget` for it.
  void ReadFrame(ByteBudget* budget);
  // A frame, or that there is none any more.
  void Handle(bool ok);
  // With the header of its first frame a connection becomes known. ABORTED: it was not, and whose
  // frame that is, is not live here.
  absl::Status Introduce(const PushHeader& first);
  // The number of blocks ends the stream, and bounds what is remembered of it: a server's blocks at
  // most. INVALID_ARGUMENT: it is none.
  absl::Status CheckAnnounced(const PushHeader& first) const;
  // Whether this frame belongs here. Knows the call's name, job and length from then on.
  absl::Status Admit(const grpc::ByteBuffer& frame, PushHeader* header, FramePayload* payload);
  void EndOfFrames();
  void Respond(const absl::StatusOr<PushReply>& reply);

  // What a read has brought.
  struct Arrival {
    bool ok = false;
    ByteBudget* budget = nullptr;
  };

  const Acceptor acceptor_;
  const Services services_;
  ParameterServer* const server_;
  CallAdmission* const admission_;
  grpc::ServerContext context_;
  Reader reader_;
  grpc::ByteBuffer frame_;
  CallTag<PushCall> arrived_tag_{&PushCall::OnArrived};
  CallTag<PushCall> frame_tag_{&PushCall::OnFrame};
  CallTag<PushCall> done_tag_{&PushCall::OnDone};
  CallTag<PushCall> finished_tag_{&PushCall::OnFinished};

  HostedJob* job_ = nullptr;
  // Set before the call can come.
  OpenPushes::Name open_name_ = 0;
  // Its connection was not known when it came.
  bool is_stranger_ = false;
  // What a frame of the job takes of the budget.
  int64_t frame_bytes_ = 0;
  FrameAdmission frames_may_come_;
  // Of the first frame; all others must have the same name. This and the counts change as each
  // frame arrives, before the next one is asked for.
  PushHeader name_;
  uint32_t frames_ = 0;
  uint64_t blocks_ = 0;
  // Of a stream that brings a part of the server's blocks: which. At most as many as the server
  // owns.
  std::vector<BlockId> part_;

  Mutex mutex_;
  // A thread is handling a frame; what has arrived meanwhile it handles next.
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Arrival> arrived_ ABSL_GUARDED_BY(mutex_);
  // gRPC is reading a frame, and what budget its share is of; whose frames have come so far.
  absl::optional<absl::Duration> reading_since_ ABSL_GUARDED_BY(mutex_);
  ByteBudget* budget_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::optional<Holder> holder_ ABSL_GUARDED_BY(mutex_);
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  HostedJob::ParkedId parked_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
