#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/proto/parameter_service.pb.h"

namespace torchps {

// Maximum size of a piece, the part of a file that one call transfers. Crashes can tear only the
// last piece of a copy.
inline constexpr int64_t kCopyPieceBytes = int64_t{1} << 20;

// Returns INVALID_ARGUMENT unless `file` is a valid name of a copy. Another server chose this name,
// which is a path below that server's directory, so it must be checked. Valid names have at most
// 200 bytes and at most two parts, separated by '/'. The parts contain letters, digits, '-', '_'
// and '.', and do not begin with '.'. The name must not end in ".tmp".
absl::Status CheckBackupName(absl::string_view file);

// Returns the folder for copies of a server's files in another server's directory, for example
// "copies-of-17-1" for server 1 of job 17.
std::string BackupFolderName(uint64_t job_id, int server_index);
// Parses the folder name. Returns false for other names.
bool ParseBackupFolderName(absl::string_view name, uint64_t* job_id, int* server_index);

// Identifies the server that holds the copies of another server's files.
struct BackupLocation {
  int index = 0;
  std::string address;  // as the workers know it
};

// Returns the server that holds the copies of the server that receives `request`: the next one in
// --servers, or the first one for the last server. Returns FAILED_PRECONDITION if the job uses a
// single server or the worker does not send the address, and INVALID_ARGUMENT if server_index is
// out of range.
absl::StatusOr<BackupLocation> GetBackupLocation(const HelloRequest& request);

// Interface to the server that holds the copies of another server's files. It covers four calls of
// torchps/proto/parameter_service.proto. Each call is attempted once, with a deadline, and blocks
// the calling thread.
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
