#include "torchps/server/data_plane/push_call.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/server/rpc/listening_sockets.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

// Applying a shorter frame is faster than waking another thread.
constexpr int64_t kShortFrameBytes = 64 << 10;

constexpr absl::string_view kRequest = "PushFrame";

absl::Status UnknownConnection() {
  return absl::AbortedError(
      "this connection is not verified yet, and the server's budget for such connections is used "
      "up; "
      "say Hello on it and push again");
}

grpc::ByteBuffer Serialize(const PushReply& reply) {
  grpc::Slice slice(reply.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

void PushCall::Listen(Acceptor acceptor, const Services& services) {
  auto call = std::shared_ptr<PushCall>(new PushCall(std::move(acceptor), services));
  call->open_name_ = services.open->Add(call);
  call->context_.AsyncNotifyWhenDone(call->done_tag_.Arm(call));
  call->acceptor_(&call->context_, &call->reader_, call->arrived_tag_.Arm(call));
}

PushCall::PushCall(Acceptor acceptor, const Services& services)
    : acceptor_(std::move(acceptor)),
      services_(services),
      server_(services.data_plane),
      budget_(&server_->push_budget()),
      admission_(services.admission),
      reader_(&context_),
      frames_may_come_(&budget_->share(PushBudget::Share::kWorking)) {}

void PushCall::OnArrived(bool ok) {
  if (!ok) {
    // The queue is shutting down. gRPC does not report the end of a call that never began.
    done_tag_.Disarm();
    return;
  }
  Listen(acceptor_, services_);
  // Checks the role only; the slot is known from the first frame.
  const absl::Status admitted = admission_->Admit(context_, kRequest, /*slot=*/std::nullopt);
  if (!admitted.ok()) {
    Respond(admitted);
    return;
  }
  job_ = server_->job();
  if (job_ == nullptr) {
    Respond(server_->JobFor(/*server_incarnation=*/0).status());
    return;
  }
  frame_bytes_ = job_->store().largest_block_bytes();
  frame_tag_.SetLong(frame_bytes_ > kShortFrameBytes);
  is_unverified_ = !services_.known->Knows(ConnectionName(context_));
  if (is_unverified_) {
    ReadUnverified();
  } else {
    AwaitFrame();
  }
}

void PushCall::AwaitFrame() {
  // If the call is cancelled, OnDone answers it.
  frames_may_come_.Await(job_->journal(), frame_bytes_, [call = shared_from_this()] {
    call->ReadFrame(PushBudget::Share::kWorking);
  });
}

void PushCall::ReadUnverified() {
  constexpr PushBudget::Share kShare = PushBudget::Share::kUnverified;
  if (TryEnter(job_->journal(), &budget_->share(kShare), frame_bytes_)) {
    ReadFrame(kShare);
  } else {
    Respond(UnknownConnection());
  }
}

void PushCall::ReadFrame(PushBudget::Share share) {
  {
    MutexLock lock(&mutex_);
    if (!answered_) {
      reading_ = Reading{server_->clock().Now(), share};
      reader_.Read(&frame_, frame_tag_.Arm(shared_from_this()));
      return;
    }
  }
  GiveBack(share);
}

void PushCall::OnFrame(bool ok) {
  Arrival arrival{ok};
  {
    MutexLock lock(&mutex_);
    arrival.share = reading_->share;
    reading_.reset();
    if (handling_) {
      arrived_ = arrival;
      return;
    }
    handling_ = true;
  }
  while (true) {
    Handle(arrival.ok);
    GiveBack(arrival.share);
    MutexLock lock(&mutex_);
    if (!arrived_.has_value()) {
      handling_ = false;
      return;
    }
    arrival = *arrived_;
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
  // After all announced blocks, only the end of the stream can follow.
  const bool is_last = blocks_ >= name_.block_count;
  if (status.ok()) {
    if (!is_last) AwaitFrame();
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
    const absl::StatusOr<HostedJob*> job = server_->JobFor(header->server_incarnation);
    if (!job.ok()) return job.status();
    const absl::Status introduced = Introduce(*header);
    if (!introduced.ok()) return introduced;
    if (absl::Status announced = CheckAnnounced(*header); !announced.ok()) return announced;
    name_ = *header;
    MutexLock lock(&mutex_);
    holder_ = Holder{header->slot, header->incarnation};
  } else if (header->slot != name_.slot || header->incarnation != name_.incarnation ||
             header->step != name_.step || header->server_incarnation != name_.server_incarnation ||
             header->part != name_.part) {
    return absl::InvalidArgumentError(absl::StrCat(
        "one Push carries one step of one slot: it began as step ", name_.step, " of slot ",
        name_.slot, " and contains step ", header->step, " of slot ", header->slot,
        header->part != name_.part ? ", only one of them marked as a part" : ""));
  }
  if (header->part) {
    if (header->shared_blocks > 0) {
      return absl::InvalidArgumentError(
          "a part of a slot's push came from shared memory; a push in parts must use the network");
    }
    part_.push_back(header->block);
  }
  ++frames_;
  blocks_ += std::max<uint64_t>(header->shared_blocks, 1);
  server_->CountReceived(frame.Length());
  return absl::OkStatus();
}

absl::Status PushCall::CheckAnnounced(const PushHeader& first) const {
  const size_t owned = job_->store().owned();
  if (first.block_count >= 1 && first.block_count <= owned) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the Push was announced with ", first.block_count,
                                                 " blocks; expected 1 to ", owned,
                                                 ", which this server owns"));
}

absl::Status PushCall::Introduce(const PushHeader& first) {
  if (!is_unverified_) return absl::OkStatus();
  const absl::Status live = job_->CheckLive(first.slot, first.incarnation);
  if (live.ok())
    services_.known->RecordCall(ConnectionName(context_), first.slot, first.incarnation);
  return live;
}

void PushCall::EndOfFrames() {
  if (frames_ == 0) {
    Respond(absl::InvalidArgumentError("a Push without a frame"));
    return;
  }
  // Truncated streams end like complete streams, so compare with the announced length.
  if (blocks_ < name_.block_count) {
    Respond(absl::InvalidArgumentError(absl::StrCat(
        "the Push was announced with ", name_.block_count, " blocks and ended after ", blocks_)));
    return;
  }
  services_.open->Remove(open_name_);
  const HostedJob::ParkedId parked = job_->FinishPush(
      name_.slot, name_.incarnation, name_.step,
      [call = shared_from_this()](const absl::StatusOr<PushReply>& reply) { call->Respond(reply); },
      std::move(part_));
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
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    parked = parked_;
  }
  if (parked != 0) job_->CancelPush(parked);
  End(absl::CancelledError("the worker went away"));
}

OpenPush::State PushCall::Describe() {
  State state;
  MutexLock lock(&mutex_);
  state.holder = holder_;
  state.reading = reading_;
  // The context knows the peer only after the call has arrived.
  if (reading_.has_value()) state.connection = ConnectionName(context_);
  return state;
}

bool PushCall::MoveToStalledShare() {
  {
    MutexLock lock(&mutex_);
    if (!reading_.has_value() || reading_->share != PushBudget::Share::kWorking) return true;
    if (!budget_->share(PushBudget::Share::kStalled).TryTake(frame_bytes_)) return false;
    reading_->share = PushBudget::Share::kStalled;
  }
  // Without the lock, because it runs the continuations of other calls.
  GiveBack(PushBudget::Share::kWorking);
  return true;
}

void PushCall::End(const absl::Status& status) {
  frames_may_come_.Cancel();
  Respond(status);
}

void PushCall::Respond(const absl::StatusOr<PushReply>& reply) {
  services_.open->Remove(open_name_);
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
