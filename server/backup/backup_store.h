#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/parameter_service.pb.h"
#include "storage/file_system.h"

namespace torchps {

// Keeps copies of other servers' files, each server's below a folder of its own in this server's
// directory (copy_name.h), as exactly the same files.
//
// There are two kinds of files. One that is whole (CopiedFile.bytes above 0) has its name only when
// all of it is on the disk, in place of what was there; until then its pieces are in memory of this
// object only: to another life they never came. One that grows (bytes 0) has its name from its
// first piece on, and each piece is on the disk before it is answered; at most the last piece of it
// can be torn by a crash. So whoever goes on with such a file in another life sends its last piece
// once more, which overwrites what is there.
//
// A server asks for the list first: so it never takes a keeper that has lost its disk for the one
// that it was.
//
// Not thread-safe. Errors beside those below are the file system's.
class BackupStore {
 public:
  // `files` outlives this.
  BackupStore(FileSystem* files, std::string directory);

  //   ABORTED           nobody has asked this life of the keeper for that server's list
  //   OUT_OF_RANGE      the piece begins behind the end of the copy, which it names
  //   INVALID_ARGUMENT  no such name, or a piece that is no part of the file
  absl::StatusOr<StoreCopyReply> Store(const StoreCopyRequest& request);
  // A copy that is not there is gone.
  absl::StatusOr<DropCopiesReply> Drop(const DropCopiesRequest& request);
  // Job 0: of whichever jobs there are.
  absl::StatusOr<ListCopiesReply> List(const ListCopiesRequest& request);
  // NOT_FOUND: there is no such copy.
  absl::StatusOr<ReadCopyReply> Read(const ReadCopyRequest& request);

 private:
  // A whole file that is coming, or the last one that came.
  struct Upload {
    std::string path;
    std::unique_ptr<WritableFile> file;  // null: it is there
    int64_t bytes = 0;                   // of all of it
    int64_t arrived = 0;
    int64_t synced = 0;
  };
  // A server of a job.
  struct Owner {
    Upload upload;
    std::set<std::string> named;  // growing files whose names are on the disk for certain
  };

  std::string GetFolder(uint64_t job_id, int server_index) const;
  std::string MakePath(const CopiedFile& file) const;
  absl::StatusOr<StoreCopyReply> StoreWhole(const StoreCopyRequest& request, Owner* owner);
  absl::Status Receive(const StoreCopyRequest& request, Upload* upload);
  absl::StatusOr<StoreCopyReply> StoreGrowing(const StoreCopyRequest& request, Owner* owner);
  absl::Status ListFolder(uint64_t job_id, int server_index, ListCopiesReply* reply);
  absl::Status ListFile(const std::string& folder, const std::string& file, CopiedFile copied,
                        ListCopiesReply* reply);

  FileSystem* const files_;
  const std::string directory_;
  // Of those that have asked for their list.
  std::map<std::pair<uint64_t, int>, Owner> owners_;
};

}  // namespace torchps
