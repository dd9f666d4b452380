#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// The server that keeps copies of another one's files, as that one sees it: the four calls of
// proto/parameter_service.proto, each made once, with a deadline, by the thread that waits for it.
//
// Thread-safe. Errors are those of BackupStore and, UNAVAILABLE or DEADLINE_EXCEEDED, those of the
// way there.
class BackupPeer {
 public:
  virtual ~BackupPeer() = default;

  virtual absl::StatusOr<StoreCopyReply> Store(const StoreCopyRequest& request) = 0;
  virtual absl::StatusOr<DropCopiesReply> Drop(const DropCopiesRequest& request) = 0;
  virtual absl::StatusOr<ListCopiesReply> List(const ListCopiesRequest& request) = 0;
  virtual absl::StatusOr<ReadCopyReply> Read(const ReadCopyRequest& request) = 0;

  // For people: "server 1 at HOST:PORT".
  virtual std::string name() const = 0;

  // Where somebody says that it is: to be tried once it cannot be reached where it was.
  virtual void Locate(const std::string& address) { (void)address; }

  // All calls that run, and all later ones, are CANCELLED.
  virtual void Cancel() {}
};

}  // namespace torchps
