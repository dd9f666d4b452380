#include "server/data_plane/push_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "wire/status_codec.h"

namespace torchps {
namespace {

// Applying as much takes less time than waking another thread.
constexpr int64_t kShortFrameBytes = 64 << 10;

constexpr absl::string_view kRequest = "PushFrame";

grpc::ByteBuffer Serialize(const PushReply& reply) {
  grpc::Slice slice(reply.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

void PushCall::Listen(Acceptor acceptor, ParameterServer* server, CallAdmission* admission,
                      ReadPlaces* places) {
  auto call =
      std::shared_ptr<PushCall>(new PushCall(std::move(acceptor), server, admission, places));
  call->context_.AsyncNotifyWhenDone(call->done_tag_.Arm(call));
  call->acceptor_(&call->context_, &call->reader_, call->arrived_tag_.Arm(call));
}

PushCall::PushCall(Acceptor acceptor, ParameterServer* server, CallAdmission* admission,
                   ReadPlaces* places)
    : acceptor_(std::move(acceptor)),
      server_(server),
      admission_(admission),
      places_(places),
      reader_(&context_) {}

PushCall::~PushCall() { places_->Leave(&stint_); }

void PushCall::OnArrived(bool ok) {
  if (!ok) {
    // The queue is shutting down; gRPC does not report the end of a call that never began.
    done_tag_.Disarm();
    return;
  }
  Listen(acceptor_, server_, admission_, places_);
  // By its role; for which slot it speaks, the first frame tells.
  const absl::Status admitted = admission_->Admit(context_, kRequest, /*slot=*/absl::nullopt);
  if (!admitted.ok()) {
    Respond(admitted);
    return;
  }
  job_ = server_->job();
  if (job_ == nullptr) {
    Respond(server_->JobFor(/*server_life=*/0).status());
    return;
  }
  frame_bytes_ = job_->store().largest_block_bytes();
  frame_tag_.SetLong(frame_bytes_ > kShortFrameBytes);
  // The first frame tells who speaks, and is all of a small push: it stands in no line.
  AskForRoom();
}

void PushCall::AskForPlace() {
  const auto blocks_to_come = static_cast<int64_t>(name_.block_count - blocks_);
  const bool may_read =
      places_->Ask(&stint_, frame_bytes_, blocks_to_come * frame_bytes_, context_.peer(),
                   [call = shared_from_this()] { call->AskForRoom(); });
  if (may_read) AskForRoom();
}

void PushCall::AskForRoom() {
  const BlockJournal::RoomId waiting =
      job_->WhenRoom([call = shared_from_this()] { call->AskForBudget(); });
  if (waiting == 0) {
    AskForBudget();
    return;
  }
  bool cancelled = false;
  {
    MutexLock lock(&mutex_);
    // A later asking may have been here first: whoever makes room runs the continuation at once.
    waiting_for_room_ = std::max(waiting_for_room_, waiting);
    cancelled = cancelled_;
  }
  if (cancelled) job_->CancelRoom(waiting);
}

void PushCall::AskForBudget() {
  const ByteBudget::Waiting waiting = server_->receive_budget().Take(
      frame_bytes_, [call = shared_from_this()] { call->ReadFrame(); });
  if (waiting == 0) {
    ReadFrame();
    return;
  }
  bool cancelled = false;
  {
    MutexLock lock(&mutex_);
    waiting_ = std::max(waiting_, waiting);
    cancelled = cancelled_;
  }
  if (cancelled) server_->receive_budget().Leave(waiting);
}

void PushCall::ReadFrame() {
  {
    MutexLock lock(&mutex_);
    if (!answered_) {
      reader_.Read(&frame_, frame_tag_.Arm(shared_from_this()));
      return;
    }
  }
  server_->receive_budget().GiveBack(frame_bytes_);
}

void PushCall::OnFrame(bool ok) {
  places_->Came(&stint_);
  {
    MutexLock lock(&mutex_);
    if (handling_) {
      arrived_ = ok;
      return;
    }
    handling_ = true;
  }
  while (true) {
    Handle(ok);
    server_->receive_budget().GiveBack(frame_bytes_);
    MutexLock lock(&mutex_);
    if (!arrived_.has_value()) {
      handling_ = false;
      return;
    }
    ok = *arrived_;
    arrived_.reset();
  }
}

void PushCall::Handle(bool ok) {
  grpc::ByteBuffer frame;
  frame.Swap(&frame_);
  {
    MutexLock lock(&mutex_);
    if (answered_) return;
  }
  if (!ok) {
    EndOfFrames();
    return;
  }
  PushHeader header;
  FramePayload payload;
  absl::Status status = Admit(frame, &header, &payload);
  // When all announced blocks are here, only the end of the stream could follow.
  const bool is_last = blocks_ == name_.block_count;
  if (status.ok()) {
    if (!is_last) {
      // What only names shared memory keeps nobody's socket busy.
      if (header.shared_blocks > 0) {
        AskForRoom();
      } else {
        AskForPlace();
      }
    }
    status = server_->PushFrame(job_, header, payload);
  }
  if (!status.ok()) {
    Respond(status);
  } else if (is_last) {
    EndOfFrames();
  }
}

absl::Status PushCall::Admit(const grpc::ByteBuffer& frame, PushHeader* header,
                             FramePayload* payload) {
  const absl::Status parsed = ParsePushFrame(frame, header, payload);
  if (!parsed.ok()) return parsed;
  if (frames_ == 0) {
    const absl::Status admitted = admission_->Admit(context_, kRequest, header->slot);
    if (!admitted.ok()) return admitted;
    const absl::StatusOr<HostedJob*> job = server_->JobFor(header->server_life);
    if (!job.ok()) return job.status();
    name_ = *header;
  } else if (header->slot != name_.slot || header->incarnation != name_.incarnation ||
             header->step != name_.step || header->server_life != name_.server_life) {
    return absl::InvalidArgumentError(absl::StrCat(
        "one Push carries one step of one slot: it began as step ", name_.step, " of slot ",
        name_.slot, " and brought step ", header->step, " of slot ", header->slot));
  }
  ++frames_;
  blocks_ += std::max<uint64_t>(header->shared_blocks, 1);
  server_->CountReceived(frame.Length());
  return absl::OkStatus();
}

void PushCall::EndOfFrames() {
  places_->Leave(&stint_);
  if (frames_ == 0) {
    Respond(absl::InvalidArgumentError("a Push without a frame"));
    return;
  }
  // A stream that was cut short ends like a finished one, so the sender says how long it is.
  if (blocks_ < name_.block_count) {
    Respond(absl::InvalidArgumentError(absl::StrCat(
        "the Push was announced with ", name_.block_count, " blocks and ended after ", blocks_)));
    return;
  }
  const HostedJob::ParkedId parked =
      job_->FinishPush(name_.slot, name_.incarnation, name_.step,
                       [call = shared_from_this()](const absl::StatusOr<PushReply>& reply) {
                         call->Respond(reply);
                       });
  bool cancelled = false;
  {
    MutexLock lock(&mutex_);
    parked_ = parked;
    cancelled = cancelled_;
  }
  if (cancelled) job_->CancelPush(parked);
}

void PushCall::OnDone(bool) {
  if (!context_.IsCancelled()) return;
  HostedJob::ParkedId parked = 0;
  BlockJournal::RoomId waiting_for_room = 0;
  ByteBudget::Waiting waiting = 0;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    parked = parked_;
    waiting_for_room = waiting_for_room_;
    waiting = waiting_;
  }
  if (parked != 0) job_->CancelPush(parked);
  if (waiting_for_room != 0) job_->CancelRoom(waiting_for_room);
  if (waiting != 0) server_->receive_budget().Leave(waiting);
  Respond(absl::CancelledError("the worker went away"));
}

void PushCall::Respond(const absl::StatusOr<PushReply>& reply) {
  // The answer may take long to leave, where the worker reads slowly.
  places_->Leave(&stint_);
  MutexLock lock(&mutex_);
  if (answered_) return;
  answered_ = true;
  void* const tag = finished_tag_.Arm(shared_from_this());
  if (reply.ok()) {
    reader_.Finish(Serialize(*reply), grpc::Status::OK, tag);
  } else {
    reader_.FinishWithError(ToGrpcStatus(reply.status()), tag);
  }
}

}  // namespace torchps
