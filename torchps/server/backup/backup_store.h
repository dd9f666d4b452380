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
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Stores exact copies of other servers' files. Each server's copies are in a separate folder of
// this server's directory (BackupFolderName).
//
// There are two kinds of files. Whole files (CopiedFile.bytes above 0) get the final name,
// replacing an older file, only when all pieces are on disk. Until then, only this object knows the
// pieces, so they do not survive a restart. Growing files (CopiedFile.bytes 0) appear with the
// whole first piece, which contains the header of a log segment. Each piece is synced before the
// answer. So a crash can tear at most the last piece. After a restart, the sender sends the last
// piece again, and it overwrites the torn one.
//
// Each server must call List() before the first Store(), so that it notices lost copies.
//
// Not thread-safe. Also returns errors of the file system.
class BackupStore {
 public:
  // `files` must outlive this.
  BackupStore(FileSystem* files, std::string directory);

  // Writes one piece of a copy.
  //   ABORTED           that server has not requested the list since this object was created
  //   OUT_OF_RANGE      the piece begins behind the end of the copy, which the message names
  //   INVALID_ARGUMENT  the name is invalid, or the piece is outside of the file
  absl::StatusOr<StoreCopyReply> Store(const StoreCopyRequest& request);
  // Removes copies. Ignores missing copies. ABORTED: as Store(), so that the owner notices if the
  // copies are gone.
  absl::StatusOr<DropCopiesReply> Drop(const DropCopiesRequest& request);
  // Lists the copies of a server. Job 0 lists the copies of all jobs.
  absl::StatusOr<ListCopiesReply> List(const ListCopiesRequest& request);
  // Reads a piece of a copy. Returns NOT_FOUND if the copy does not exist.
  absl::StatusOr<ReadCopyReply> Read(const ReadCopyRequest& request);

 private:
  // The whole file in transfer, or the last one received.
  struct Upload {
    std::string path;
    std::unique_ptr<WritableFile> file;  // null after the rename
    int64_t bytes = 0;                   // total size
    int64_t arrived = 0;
    int64_t synced = 0;
  };
  // State of one server of a job.
  struct Owner {
    Upload upload;
    std::set<std::string> named;  // growing files with a synced directory entry
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
  // Servers that have requested the list, by job and index.
  std::map<std::pair<uint64_t, int>, Owner> owners_;
};

}  // namespace torchps
