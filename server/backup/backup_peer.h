#pragma once

#include <string>

#include "absl/status/statusor.h"
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

}  // namespace torchps
