#include "server/backup/backup_peer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "wire/status_codec.h"

namespace torchps {
namespace {

// Long enough for a piece, which the peer syncs before it answers.
constexpr absl::Duration kCallTimeout = absl::Seconds(30);

}  // namespace

GrpcBackupPeer::GrpcBackupPeer(Connect connect, int index, std::string address)
    : connect_(std::move(connect)), index_(index), address_(std::move(address)) {}

absl::StatusOr<StoreCopyReply> GrpcBackupPeer::Store(const StoreCopyRequest& request) {
  return Call(&ParameterService::Stub::StoreCopy, request);
}

absl::StatusOr<DropCopiesReply> GrpcBackupPeer::Drop(const DropCopiesRequest& request) {
  return Call(&ParameterService::Stub::DropCopies, request);
}

absl::StatusOr<ListCopiesReply> GrpcBackupPeer::List(const ListCopiesRequest& request) {
  return Call(&ParameterService::Stub::ListCopies, request);
}

absl::StatusOr<ReadCopyReply> GrpcBackupPeer::Read(const ReadCopyRequest& request) {
  return Call(&ParameterService::Stub::ReadCopy, request);
}

template <class Request, class Response>
absl::StatusOr<Response> GrpcBackupPeer::Call(
    grpc::Status (ParameterService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  const absl::StatusOr<std::shared_ptr<ParameterService::Stub>> stub = Begin(&context);
  if (!stub.ok()) return stub.status();
  Response response;
  const absl::Status status = FromGrpcStatus(((**stub).*method)(&context, request, &response));
  MutexLock lock(&mutex_);
  contexts_.erase(&context);
  if (status.ok()) return response;
  // The server may have moved. A new stub also makes gRPC resolve the name again.
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    stub_ = nullptr;
    if (!other_address_.empty()) address_ = std::exchange(other_address_, std::string());
  }
  return status;
}

absl::StatusOr<std::shared_ptr<ParameterService::Stub>> GrpcBackupPeer::Begin(
    grpc::ClientContext* context) {
  MutexLock lock(&mutex_);
  if (cancelled_) return absl::CancelledError("the server stops");
  if (stub_ == nullptr) {
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = connect_(index_, address_);
    if (!channel.ok()) return channel.status();
    stub_ = ParameterService::NewStub(*channel);
  }
  contexts_.insert(context);
  return stub_;
}

std::string GrpcBackupPeer::name() const {
  MutexLock lock(&mutex_);
  return absl::StrCat("server ", index_, " at ", address_);
}

void GrpcBackupPeer::Locate(const std::string& address) {
  MutexLock lock(&mutex_);
  other_address_ = address == address_ ? std::string() : address;
}

void GrpcBackupPeer::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* const context : contexts_) context->TryCancel();
}

}  // namespace torchps
