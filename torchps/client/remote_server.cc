#include "torchps/client/remote_server.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/client/calls/address_resolver.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/transport/shared_layout.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

constexpr absl::Duration kHelloTimeout = absl::Seconds(5);

HelloRequest HelloTo(int index, HelloRequest hello) {
  hello.set_server_index(index);
  return hello;
}

// Adds the current server addresses to `hello`.
void SetAddresses(const std::shared_ptr<AddressResolver>& book, HelloRequest* hello) {
  hello->clear_server_address();
  for (const ServerEndpoint& server : GetEndpoints(book)) {
    hello->add_server_address(GetAddress(server));
  }
}

}  // namespace

RemoteServer::RemoteServer(ServerEndpoint endpoint, HelloRequest hello, const BlockMap* map,
                           RollbackAccounting* accounting, RetryDeadline::Options patience)
    : index_(endpoint.index),
      hello_(HelloTo(endpoint.index, std::move(hello))),
      map_(map),
      accounting_(accounting),
      log_(patience.log),
      line_(std::make_shared<Line>(endpoint)),
      may_share_(hello_.has_shared_memory() && IsLocalAddress(endpoint.address)),
      patience_(endpoint, patience),
      lease_(patience.clock) {}

std::shared_ptr<RemoteServer::Line> RemoteServer::line() const {
  MutexLock lock(&mutex_);
  return line_;
}

std::shared_ptr<ParameterService::Stub> RemoteServer::stub() const {
  const std::shared_ptr<Line> now = line();
  return {now, now->stub.get()};
}

absl::StatusOr<absl::Duration> RemoteServer::Failed(const absl::Status& failure) {
  absl::StatusOr<absl::Duration> delay = patience_.Failed(failure);
  if (!delay.ok()) return delay;
  const std::optional<ServerEndpoint> moved = MovedFrom(endpoint(), patience_.silence());
  if (!moved.has_value()) return delay;
  MoveTo(*moved);
  return absl::ZeroDuration();
}

void RemoteServer::MoveTo(const ServerEndpoint& endpoint) {
  log_(absl::StrCat("server ", index_, " does not answer at ", this->endpoint().address,
                    " any more; trying ", endpoint.address));
  {
    MutexLock lock(&mutex_);
    line_ = std::make_shared<Line>(endpoint);
  }
  has_moved_ = true;
  may_share_ = hello_.has_shared_memory() && IsLocalAddress(endpoint.address);
  patience_.MovedTo(endpoint);
}

HelloRequest RemoteServer::RestoreRequest() const {
  HelloRequest hello = hello_;
  hello.set_only_restores(true);
  hello.set_continues(true);
  hello.clear_shared_memory();
  if (const auto book = endpoint().book; book != nullptr) SetAddresses(book, &hello);
  return hello;
}

std::unique_ptr<ClientCall> RemoteServer::MakeHello() {
  HelloRequest hello = hello_;
  hello.set_continues(expects_model_);
  if (!may_share_) hello.clear_shared_memory();
  if (const auto book = endpoint().book; book != nullptr) SetAddresses(book, &hello);
  return std::make_unique<ClientUnaryCall<HelloReply>>(
      kHelloTimeout,
      [this, hello = std::move(hello)](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return stub()->PrepareAsyncHello(context, hello, queue);
      },
      [this](const HelloReply& reply) { return TakeHello(reply); });
}

bool RemoteServer::IsAnotherProgram(const absl::Status& status, bool greeting) const {
  const bool is_known = server_incarnation_ != 0 || has_moved_;
  if (!is_known || has_lost_model_) return false;
  switch (status.code()) {
    // Answers of other programs, other users' servers, and servers with other certificates.
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return true;
    // Answers of a server of another job, or of a server without a job.
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
      return greeting;
    default:
      return false;
  }
}

absl::Status RemoteServer::TakeHello(const HelloReply& reply) {
  busy_with_.clear();
  if (reply.has_restoring()) {
    busy_with_ = RestoringText(reply.restoring());
    return absl::OkStatus();
  }
  const bool is_new_incarnation = server_incarnation_ != reply.server_incarnation();
  if (expects_model_ && !reply.initialized()) {
    has_lost_model_ = true;
    return absl::FailedPreconditionError("it restarted and lost the model; start the job again");
  }
  if (is_new_incarnation && server_incarnation_ != 0 && reply.has_restored()) {
    const absl::Status taken = TakeRestored(reply.restored());
    if (!taken.ok()) return taken;
  }
  server_incarnation_ = reply.server_incarnation();
  start_clock_ = std::max(reply.min_clock(), reply.last_step());
  last_step_ = reply.last_step();
  TakeSharedMemory(reply);
  lease_.Begin(server_incarnation_);
  return absl::OkStatus();
}

absl::Status RemoteServer::TakeRestored(const Restored& restored) {
  const std::vector<BlockId>& owned = map_->all_owned_by(index_);
  if (static_cast<size_t>(restored.block_step_size()) != owned.size()) {
    return absl::InternalError(absl::StrCat("reported the restored steps of ",
                                            restored.block_step_size(), " blocks; expected ",
                                            owned.size()));
  }
  RollbackAccounting::Lost lost;
  for (size_t i = 0; i < owned.size(); ++i) {
    // Other processes count the losses of their parts.
    const std::optional<BlockId> own = map_->Find(owned[i]);
    if (own.has_value())
      lost += accounting_->RollBack(*own, restored.block_step(static_cast<int>(i)));
  }
  std::string line = absl::StrCat(endpoint().name(), " is back");
  if (restored.checkpoint() > 0) absl::StrAppend(&line, " from checkpoint ", restored.checkpoint());
  if (restored.from_log()) {
    absl::StrAppend(&line, restored.checkpoint() > 0 ? " and" : " from", " its push log");
  }
  if (lost.blocks == 0) {
    absl::StrAppend(&line, "; no push of slot ", hello_.slot(), " was lost");
  } else {
    absl::StrAppend(&line, "; slot ", hello_.slot(), " lost the pushes of ", lost.blocks,
                    lost.blocks == 1 ? " block" : " blocks", ", starting with step ",
                    lost.first_step);
  }
  log_(line);
  return absl::OkStatus();
}

void RemoteServer::TakeSharedMemory(const HelloReply& reply) {
  shared_values_ = nullptr;
  if (!may_share_) return;
  absl::Status status = absl::UnavailableError("the server cannot reach this worker's memory");
  if (reply.has_shared_memory()) {
    auto opened = SharedValues::Open(DecodeOffer(reply.shared_memory()), *map_, index_);
    if (opened.ok()) {
      shared_values_ = *std::move(opened);
      return;
    }
    status = opened.status();
  }
  if (has_complained_) return;
  has_complained_ = true;
  log_(absl::StrCat(endpoint().name(), " is on this machine, but values and gradients go through ",
                    "the network: ", status.message()));
}

std::unique_ptr<ClientCall> RemoteServer::MakeLeave(absl::Duration timeout) {
  lease_.End();
  LeaveRequest request;
  request.set_slot(hello_.slot());
  request.set_incarnation(hello_.incarnation());
  request.set_server_incarnation(server_incarnation_);
  return std::make_unique<ClientUnaryCall<LeaveReply>>(
      timeout,
      [this, request](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return stub()->PrepareAsyncLeave(context, request, queue);
      },
      [](const LeaveReply&) { return absl::OkStatus(); });
}

std::unique_ptr<ClientCall> RemoteServer::MakeRenew(absl::Duration timeout,
                                                    std::function<void(const RenewReply&)> take) {
  RenewRequest request;
  request.set_slot(hello_.slot());
  request.set_incarnation(hello_.incarnation());
  request.set_server_incarnation(server_incarnation_);
  return std::make_unique<ClientUnaryCall<RenewReply>>(
      timeout,
      [this, request](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return stub()->PrepareAsyncRenew(context, request, queue);
      },
      [take = std::move(take)](const RenewReply& reply) {
        take(reply);
        return absl::OkStatus();
      });
}

absl::Status RemoteServer::WithName(const absl::Status& status) const {
  return absl::Status(status.code(), absl::StrCat(endpoint().name(), ": ", status.message()));
}

}  // namespace torchps
