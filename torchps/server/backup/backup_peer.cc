#include "torchps/server/backup/backup_peer.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "torchps/common/text.h"
#include "torchps/transport/status_codec.h"

namespace torchps {

namespace {

constexpr size_t kMaxNameBytes = 200;
constexpr size_t kMaxParts = 2;

bool IsPart(absl::string_view part) {
  return !part.empty() && part[0] != '.' && absl::c_all_of(part, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

absl::Status CheckBackupName(absl::string_view file) {
  const std::vector<absl::string_view> parts = absl::StrSplit(file, '/');
  if (file.size() <= kMaxNameBytes && parts.size() <= kMaxParts && absl::c_all_of(parts, IsPart) &&
      !absl::EndsWith(file, ".tmp")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", Printable(file.substr(0, kMaxNameBytes)),
      "' is not a valid name of a copy; expected one or two parts of letters, digits, '-', '_' "
      "and '.', of ",
      kMaxNameBytes, " bytes at most"));
}

std::string BackupFolderName(uint64_t job_id, int server_index) {
  return absl::StrCat("copies-of-", job_id, "-", server_index);
}

bool ParseBackupFolderName(absl::string_view name, uint64_t* job_id, int* server_index) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "copies-of-")) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, '-');
  return parts.size() == 2 && absl::SimpleAtoi(parts[0], job_id) &&
         absl::SimpleAtoi(parts[1], server_index) &&
         BackupFolderName(*job_id, *server_index) == name;
}

absl::StatusOr<BackupLocation> GetBackupLocation(const HelloRequest& request) {
  if (request.server_count() < 2) {
    return absl::FailedPreconditionError(
        "durability.copies is 1, which needs at least 2 servers, and this job has 1; name more in "
        "--servers, or leave copies out");
  }
  if (request.server_index() < 0 || request.server_index() >= request.server_count()) {
    return absl::InvalidArgumentError(absl::StrCat("server_index is ", request.server_index(),
                                                   "; expected 0 to ", request.server_count() - 1));
  }
  BackupLocation place;
  place.index = (request.server_index() + 1) % request.server_count();
  if (request.server_address_size() != request.server_count()) {
    return absl::FailedPreconditionError(
        absl::StrCat("durability.copies is 1, but the worker names the addresses of ",
                     request.server_address_size(), " servers; expected the addresses of all ",
                     request.server_count(), ", which copy files from each other"));
  }
  place.address = request.server_address(place.index);
  if (!place.address.empty()) return place;
  return absl::FailedPreconditionError(
      absl::StrCat("durability.copies is 1, but the worker has no address for server ", place.index,
                   ", which runs in the worker's process; leave copies out"));
}

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
  // The server may have moved. A new stub also makes gRPC resolve the host name again.
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
