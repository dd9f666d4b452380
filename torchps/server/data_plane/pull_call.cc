#include "torchps/server/data_plane/pull_call.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "torchps/common/types.h"
#include "torchps/server/rpc/listening_sockets.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

// Copying a shorter block is faster than waking another thread.
constexpr int64_t kShortBlockBytes = 64 << 10;

// Returns the answer for a block that the reader does not want.
ParameterStore::Image Unwanted() {
  ParameterStore::Image image;
  image.unchanged = true;
  return image;
}

}  // namespace

void PullCall::Listen(Acceptor acceptor, const Services& services) {
  auto call = std::shared_ptr<PullCall>(new PullCall(std::move(acceptor), services));
  call->context_.AsyncNotifyWhenDone(call->done_tag_.Arm(call));
  call->acceptor_(&call->context_, &call->request_, &call->writer_, call->arrived_tag_.Arm(call));
}

PullCall::PullCall(Acceptor acceptor, const Services& services)
    : acceptor_(std::move(acceptor)),
      services_(services),
      server_(services.data_plane),
      writer_(&context_),
      blocks_may_go_(&server_->pull_budget()) {}

void PullCall::OnArrived(bool ok) {
  if (!ok) {
    // The queue is shutting down. gRPC does not report the end of a call that never began.
    done_tag_.Disarm();
    return;
  }
  Listen(acceptor_, services_);
  const absl::Status begun = Begin();
  if (!begun.ok()) FinishUnlessServing(begun);
}

absl::Status PullCall::Begin() {
  PullRequest request;
  const grpc::Status parsed =
      grpc::SerializationTraits<PullRequest>::Deserialize(&request_, &request);
  if (!parsed.ok()) return absl::InvalidArgumentError("the PullRequest is not a Protobuf message");
  std::optional<SlotId> slot;
  if (!request.read_only()) slot = request.slot();
  const absl::Status admitted =
      services_.admission->Admit(context_, request.GetDescriptor()->name(), slot);
  if (!admitted.ok()) return admitted;
  const absl::StatusOr<HostedJob*> job = server_->JobFor(request.server_incarnation());
  if (request.read_only()) {
    // Read-only callers may read any server incarnation.
    job_ = server_->job();
    if (job_ == nullptr || !job_->store().initialized()) {
      // ABORTED makes the worker send Hello, which restores the values from before the restart.
      if (request.server_incarnation() != 0 && !job.ok()) return job.status();
      return absl::FailedPreconditionError("this server has no values to read yet");
    }
    if (job.ok()) {
      if (absl::Status status = TakeVersions(request); !status.ok()) return status;
    }
    Serve(job_->ReadOnlyPull());
    return absl::OkStatus();
  }
  if (!job.ok()) return job.status();
  job_ = *job;
  if (absl::Status status = TakeVersions(request); !status.ok()) return status;
  encoding_ = job_->pull_encoding();
  shared_ = request.shared_memory();
  // Called before the answer, because a push may follow the answer immediately.
  if (job_->CheckLive(request.slot(), request.incarnation()).ok()) {
    services_.known->RecordCall(ConnectionName(context_), request.slot(), request.incarnation());
  }
  const absl::StatusOr<HostedJob::ParkedId> parked = job_->Pull(
      request.slot(), request.incarnation(), request.clock(), request.ahead(),
      [call = shared_from_this()](const HostedJob::PullGrant& grant) { call->Serve(grant); });
  if (!parked.ok()) return parked.status();
  bool cancelled = false;
  {
    MutexLock lock(&mutex_);
    parked_ = *parked;
    cancelled = cancelled_;
  }
  if (cancelled) job_->CancelPull(*parked);
  return absl::OkStatus();
}

absl::Status PullCall::TakeVersions(const PullRequest& request) {
  const auto& versions = request.have_version();
  const auto owned = static_cast<int>(job_->store().owned());
  if (!versions.empty() && versions.size() != owned) {
    return absl::InvalidArgumentError(
        absl::StrCat("have_version lists ", versions.size(), " blocks; this server owns ", owned));
  }
  have_.assign(versions.begin(), versions.end());
  return absl::OkStatus();
}

void PullCall::Serve(const HostedJob::PullGrant& grant) {
  {
    MutexLock lock(&mutex_);
    if (decided_) return;
    decided_ = true;
  }
  grant_ = grant;
  turn_tag_.SetLong(job_->store().largest_block_bytes() > kShortBlockBytes);
  if (shared_) {
    SendShared();
  } else {
    open_name_ = services_.open->Add(weak_from_this());
    SendNext();
  }
}

void PullCall::SendShared() {
  ParameterStore& store = job_->store();
  if (!store.shared()) {
    Finish(absl::InvalidArgumentError("a pull from shared memory, but this server shares none"));
    return;
  }
  if (!store.initialized()) {
    Finish(absl::AbortedError("this server has no values yet"));
    return;
  }
  PullHeader header;
  header.block_count = 1;
  header.min_clock = grant_.min_clock;
  header.parked_us = static_cast<uint64_t>(absl::ToInt64Microseconds(grant_.parked));
  header.shared = true;
  const grpc::ByteBuffer frame = EncodePullFrame(header, grpc::Slice());
  server_->CountSent(frame.Length());
  writer_.WriteAndFinish(frame, grpc::WriteOptions(), grpc::Status::OK,
                         finished_tag_.Arm(shared_from_this()));
}

void PullCall::SendNext() {
  ParameterStore& store = job_->store();
  if (next_block_ == store.owned()) {
    Finish(absl::OkStatus());
    return;
  }
  // Pulls do not need the journal.
  if (!blocks_may_go_.Await(/*journal=*/nullptr, store.largest_block_bytes(),
                            [call = shared_from_this()] { call->SendBlock(); })) {
    Finish(absl::CancelledError("the worker went away"));
  }
}

void PullCall::SendBlock() {
  ParameterStore& store = job_->store();
  const Version have = have_.empty() ? Version{0} : have_[next_block_];
  absl::StatusOr<ParameterStore::Image> image =
      have == kUnwantedBlock ? Unwanted() : store.Read(next_block_, encoding_, have);
  if (!image.ok()) {
    blocks_may_go_.Release(store.largest_block_bytes());
    Finish(image.status());
    return;
  }
  PullHeader header;
  header.block = store.block_id(next_block_);
  header.version = image->version;
  header.block_count = static_cast<uint32_t>(store.owned());
  header.min_clock = grant_.min_clock;
  header.parked_us = static_cast<uint64_t>(absl::ToInt64Microseconds(grant_.parked));
  header.encoding = image->encoding;
  header.unchanged = image->unchanged;
  ++next_block_;
  const grpc::ByteBuffer frame = EncodePullFrame(header, std::move(image->values));
  server_->CountSent(frame.Length());
  {
    MutexLock lock(&mutex_);
    sending_since_ = server_->clock().Now();
  }
  writer_.Write(frame, written_tag_.Arm(shared_from_this()));
}

void PullCall::OnWritten(bool ok) {
  {
    MutexLock lock(&mutex_);
    sending_since_.reset();
  }
  if (ok && next_block_ < job_->store().owned()) {
    // Lets other pulls run first.
    services_.poller->Enter(static_cast<CompletionTag*>(turn_tag_.Arm(shared_from_this())));
    return;
  }
  blocks_may_go_.Release(job_->store().largest_block_bytes());
  Finish(ok ? absl::OkStatus() : absl::CancelledError("the worker went away"));
}

void PullCall::OnTurn(bool) {
  // Release() may run a waiting call, which then sends a block. This may take long, so it happens
  // here and not in OnWritten(): during a long turn, another thread polls.
  blocks_may_go_.Release(job_->store().largest_block_bytes());
  SendNext();
}

void PullCall::OnDone(bool) {
  if (!context_.IsCancelled()) return;
  HostedJob::ParkedId parked = 0;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    parked = parked_;
  }
  if (parked != 0) job_->CancelPull(parked);
  const absl::Status gone = absl::CancelledError("the worker went away");
  // If the call is sending, it ends when the write fails.
  if (blocks_may_go_.Cancel()) {
    Finish(gone);
  } else {
    FinishUnlessServing(gone);
  }
}

std::optional<absl::Duration> PullCall::sending_since() {
  MutexLock lock(&mutex_);
  return sending_since_;
}

void PullCall::End() { context_.TryCancel(); }

void PullCall::Finish(const absl::Status& status) {
  if (open_name_ != 0) services_.open->Remove(open_name_);
  writer_.Finish(ToGrpcStatus(status), finished_tag_.Arm(shared_from_this()));
}

void PullCall::FinishUnlessServing(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (decided_) return;
    decided_ = true;
  }
  Finish(status);
}

}  // namespace torchps
