#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/async_stream.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/security/call_admission.h"
#include "torchps/server/data_plane/open_calls.h"
#include "torchps/server/data_plane/verified_connections.h"
#include "torchps/server/job/frame_admission.h"
#include "torchps/server/job/parameter_server.h"
#include "torchps/server/parked/push_budget.h"
#include "torchps/server/rpc/poller.h"
#include "torchps/transport/frame_codec.h"

namespace torchps {

// Serves one Push: reads frames and passes each to the job on the queue's thread, so that a block
// is applied while it is in the cache. Then answers, as soon as the push is settled and durable
// (HostedJob::FinishPush).
//
// Reads a frame only when FrameAdmission allows it. The next frame arrives while the current one is
// applied, so the two overlap. The frames of a call are handled in order, and handling stops at the
// first error.
//
// On an unverified connection (VerifiedConnections), the first frame must be from a live process of
// the job. It is read only if PushBudget's share for such connections has the bytes immediately;
// otherwise the call is ABORTED, and the worker sends Hello.
//
// Owned by the pending operations and, while parked or queued, by the continuation.
class PushCall final : public OpenPush, public std::enable_shared_from_this<PushCall> {
 public:
  // Receives frames and sends one PushReply, both as bytes.
  using Reader = grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer>;
  // ParameterService's RequestPush, bound to the service and the queue.
  using Acceptor = std::function<void(grpc::ServerContext*, Reader*, void* tag)>;

  // Dependencies of the calls; they outlive the queue.
  struct Services {
    ParameterServer* data_plane = nullptr;
    CallAdmission* admission = nullptr;
    OpenPushes* open = nullptr;
    VerifiedConnections* known = nullptr;
  };

  // Arms the queue for the server's lifetime.
  static void Listen(Acceptor acceptor, const Services& services);

  State Describe() override;
  bool MoveToStalledShare() override;
  void End(const absl::Status& status) override;

 private:
  PushCall(Acceptor acceptor, const Services& services);

  void OnArrived(bool ok);
  void OnFrame(bool ok);
  void OnDone(bool ok);
  void OnFinished(bool) {}

  // Reads the next frame when it is admitted.
  void AwaitFrame();
  // Reads the first frame on an unverified connection, or refuses it.
  void ReadUnverified();
  // Reads a frame, using the bytes that were reserved from `share`.
  void ReadFrame(PushBudget::Share share);
  void GiveBack(PushBudget::Share share) { budget_->share(share).GiveBack(frame_bytes_); }
  // Handles a frame, or the end of the stream if `ok` is false.
  void Handle(bool ok);
  // Verifies the connection with the first frame's header. ABORTED: the connection was unverified,
  // and the frame's sender is not live here.
  absl::Status Introduce(const PushHeader& first);
  // INVALID_ARGUMENT if the announced number of blocks is 0 or above this server's. The stream ends
  // after this number of blocks, which also limits the call's memory.
  absl::Status CheckAnnounced(const PushHeader& first) const;
  // Parses a frame and checks that it belongs to this push. The first frame sets the slot,
  // incarnation, step and number of blocks of the push.
  absl::Status Admit(const grpc::ByteBuffer& frame, PushHeader* header, FramePayload* payload);
  void EndOfFrames();
  void Respond(const absl::StatusOr<PushReply>& reply);

  // Result of a read, and the share of the push budget that holds the frame's bytes.
  struct Arrival {
    bool ok = false;
    PushBudget::Share share = PushBudget::Share::kWorking;
  };

  const Acceptor acceptor_;
  const Services services_;
  ParameterServer* const server_;
  PushBudget* const budget_;
  CallAdmission* const admission_;
  grpc::ServerContext context_;
  Reader reader_;
  grpc::ByteBuffer frame_;
  CallTag<PushCall> arrived_tag_{&PushCall::OnArrived};
  CallTag<PushCall> frame_tag_{&PushCall::OnFrame};
  CallTag<PushCall> done_tag_{&PushCall::OnDone};
  CallTag<PushCall> finished_tag_{&PushCall::OnFinished};

  HostedJob* job_ = nullptr;
  // Name in `services_.open`. Set before the call can arrive.
  OpenPushes::Name open_name_ = 0;
  // True if the connection was unverified when the call arrived.
  bool is_unverified_ = false;
  // The bytes reserved for one frame of the job.
  int64_t frame_bytes_ = 0;
  FrameAdmission frames_may_come_;
  // Header of the first frame; the other frames must match it. This header and the next two counts
  // change only while a frame is handled, before the next read begins.
  PushHeader name_;
  uint32_t frames_ = 0;
  uint64_t blocks_ = 0;
  // The blocks received so far, if several streams share this push (PushHeader::part). At most the
  // number of this server's blocks.
  std::vector<BlockId> part_;

  Mutex mutex_;
  // True while a thread handles a frame; that thread also handles the frame in `arrived_`.
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Arrival> arrived_ ABSL_GUARDED_BY(mutex_);
  // Set while gRPC reads a frame.
  std::optional<Reading> reading_ ABSL_GUARDED_BY(mutex_);
  // The sender of earlier frames.
  std::optional<Holder> holder_ ABSL_GUARDED_BY(mutex_);
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  HostedJob::ParkedId parked_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
