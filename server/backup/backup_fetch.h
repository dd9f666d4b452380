#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/backup/backup_peer.h"
#include "storage/file_system.h"

namespace torchps {

// Restores a server's files from the server that holds their backup copies.
//
// During the restore, a marker file (server-1.fetching for server 1) in the directory shows that
// the files are incomplete. After an interruption, the next fetch begins again. Thread-compatible.
class BackupFetch {
 public:
  struct Options {
    // Both must outlive this.
    FileSystem* files = nullptr;
    BackupPeer* peer = nullptr;
    std::string directory;
    uint64_t job_id = 0;  // 0 means any job that has copies
    int server_index = 0;
    // Progress reports. `begin` receives a message for users and the number of pieces to follow.
    // `done` is called after each piece.
    std::function<void(const std::string& what, int64_t pieces)> begin = [](const std::string&,
                                                                            int64_t) {};
    std::function<void()> done = [] {};
  };
  explicit BackupFetch(Options options);

  // Returns true if an interrupted fetch left the directory incomplete.
  bool WasBrokenOff() const;

  // Fetches all copies and returns the number of bytes restored. Returns 0 if there are no copies,
  // and leaves the directory unchanged.
  //   UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED  the peer or the network failed; retry later
  //   FAILED_PRECONDITION  the peer holds copies of more than one job, works for another job, or
  //                        has no directory
  //   INVALID_ARGUMENT     the peer lists an invalid file name
  //   DATA_LOSS            the size of a copy differs from the list
  //   other codes          the local or the peer's disk failed
  absl::StatusOr<int64_t> Run();

  // Replaces a damaged file by the copy, once the copy is here and has this checksum. Errors as
  // Run(), and:
  //   NOT_FOUND  there is no copy
  //   DATA_LOSS  the copy has another checksum
  absl::Status Replace(const std::string& file, uint32_t crc32c);

  // Fetches the copies of the files in a damaged folder. Calls `is_better` with the path of the
  // fetched folder, and replaces the damaged folder if it returns true. Returns whether it did so;
  // false if there are no copies. Errors as Run() and `is_better`.
  absl::StatusOr<bool> ReplaceFolder(
      const std::string& folder,
      absl::FunctionRef<absl::StatusOr<bool>(const std::string& path)> is_better);

 private:
  std::string MarkPath() const;
  absl::StatusOr<ListCopiesReply> List();
  // Writes the copy to the file in `directory`. `crc32c`: the required checksum; nullopt if
  // unknown.
  absl::Status Fetch(const CopiedFile& file, const std::string& directory,
                     std::optional<uint32_t> crc32c);
  absl::Status Mark();
  absl::Status Unmark();
  absl::Status RemoveFiles(const std::string& folder);
  // Returns the checksum.
  absl::StatusOr<uint32_t> Receive(const CopiedFile& file, WritableFile* out);
  absl::Status OfPeer(const absl::Status& status) const;

  const Options options_;
  std::string need_;  // why the peer's files are needed
};

}  // namespace torchps
