#include "server/push_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_codec.h"

namespace torchps {
namespace {

grpc::ByteBuffer Serialize(const PushReply& reply) {
  grpc::Slice slice(reply.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

void PushCall::Listen(Acceptor acceptor, ParameterServer* server) {
  auto call = std::shared_ptr<PushCall>(new PushCall(std::move(acceptor), server));
  call->context_.AsyncNotifyWhenDone(call->done_tag_.Arm(call));
  call->acceptor_(&call->context_, &call->reader_, call->arrived_tag_.Arm(call));
}

PushCall::PushCall(Acceptor acceptor, ParameterServer* server)
    : acceptor_(std::move(acceptor)), server_(server), reader_(&context_) {}

void PushCall::OnArrived(bool ok) {
  if (!ok) {
    // The queue is shutting down; gRPC does not report the end of a call that never began.
    done_tag_.Disarm();
    return;
  }
  Listen(acceptor_, server_);
  ReadNext();
}

void PushCall::ReadNext() {
  frame_.Clear();
  reader_.Read(&frame_, frame_tag_.Arm(shared_from_this()));
}

void PushCall::OnFrame(bool ok) {
  if (!ok) {
    EndOfFrames();
    return;
  }
  const absl::Status handled = HandleFrame();
  if (!handled.ok()) {
    Respond(handled);
    return;
  }
  ReadNext();
}

absl::Status PushCall::HandleFrame() {
  PushHeader header;
  FramePayload payload;
  const absl::Status parsed = ParsePushFrame(frame_, &header, &payload);
  if (!parsed.ok()) return parsed;
  if (frames_ == 0) {
    const absl::StatusOr<HostedJob*> job = server_->JobFor(header.server_life);
    if (!job.ok()) return job.status();
    job_ = *job;
    name_ = header;
  } else if (header.slot != name_.slot || header.incarnation != name_.incarnation ||
             header.step != name_.step || header.server_life != name_.server_life) {
    return absl::InvalidArgumentError(absl::StrCat(
        "one Push carries one step of one slot: it began as step ", name_.step, " of slot ",
        name_.slot, " and brought step ", header.step, " of slot ", header.slot));
  }
  ++frames_;
  server_->CountReceived(frame_.Length());
  const absl::Status pushed = job_->PushFrame(header, payload);
  blocks_ += std::max<uint64_t>(header.shared_blocks, 1);
  return pushed;
}

void PushCall::EndOfFrames() {
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
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    parked = parked_;
  }
  if (parked != 0) job_->CancelPush(parked);
  Respond(absl::CancelledError("the worker went away"));
}

void PushCall::Respond(const absl::StatusOr<PushReply>& reply) {
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
