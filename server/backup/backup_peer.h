#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "proto/parameter_service.grpc.pb.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// Interface to the server that holds the copies of another server's files. It covers four calls of
// proto/parameter_service.proto. Each call is attempted once, with a deadline, and blocks the
// calling thread.
//
// Thread-safe. Returns the errors of BackupStore, and UNAVAILABLE or DEADLINE_EXCEEDED for network
// failures.
class BackupPeer {
 public:
  virtual ~BackupPeer() = default;

  virtual absl::StatusOr<StoreCopyReply> Store(const StoreCopyRequest& request) = 0;
  virtual absl::StatusOr<DropCopiesReply> Drop(const DropCopiesRequest& request) = 0;
  virtual absl::StatusOr<ListCopiesReply> List(const ListCopiesRequest& request) = 0;
  virtual absl::StatusOr<ReadCopyReply> Read(const ReadCopyRequest& request) = 0;

  // Returns a name for messages: "server 1 at HOST:PORT".
  virtual std::string name() const = 0;

  // Sets an alternative address, to be tried when the current address is unreachable.
  virtual void Locate(const std::string& address) { (void)address; }

  // Cancels all running and future calls with CANCELLED.
  virtual void Cancel() {}
};

// Implements BackupPeer over gRPC. Calls fail at once if the server is unreachable.
//
// Thread-safe.
class GrpcBackupPeer final : public BackupPeer {
 public:
  // Opens a channel to server `index`, which workers reach at `address`.
  using Connect = std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(
      int index, const std::string& address)>;

  GrpcBackupPeer(Connect connect, int index, std::string address);

  absl::StatusOr<StoreCopyReply> Store(const StoreCopyRequest& request) override;
  absl::StatusOr<DropCopiesReply> Drop(const DropCopiesRequest& request) override;
  absl::StatusOr<ListCopiesReply> List(const ListCopiesRequest& request) override;
  absl::StatusOr<ReadCopyReply> Read(const ReadCopyRequest& request) override;
  std::string name() const override;
  void Locate(const std::string& address) override;
  void Cancel() override;

 private:
  template <class Request, class Response>
  absl::StatusOr<Response> Call(grpc::Status (ParameterService::Stub::*method)(grpc::ClientContext*,
                                                                               const Request&,
                                                                               Response*),
                                const Request& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the stub for the next call. Registers `context` so that Cancel() reaches the call.
  absl::StatusOr<std::shared_ptr<ParameterService::Stub>> Begin(grpc::ClientContext* context)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const Connect connect_;
  const int index_;

  mutable Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  std::string other_address_ ABSL_GUARDED_BY(mutex_);  // tried next; may be empty
  std::shared_ptr<ParameterService::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);  // of running calls
};

}  // namespace torchps
