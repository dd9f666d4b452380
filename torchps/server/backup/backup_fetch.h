#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/storage/file_system.h"

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
    // True if Run() also fetches the files that are in no folder. They belong to the coordinator,
    // which has newer ones once it runs.
    bool with_coordinator = false;
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
  //   INVALID_ARGUMENT     the peer lists an invalid file name or size
  //   DATA_LOSS            the size of a copy differs from the list
  //   other codes          the local or the peer's disk failed
  absl::StatusOr<int64_t> Run();

  // Replaces a damaged file by the copy, once the copy is here and has this checksum (nullopt:
  // unknown). Errors as Run(), and:
  //   NOT_FOUND  there is no copy
  //   DATA_LOSS  the copy has another checksum
  absl::Status Replace(const std::string& file, std::optional<uint32_t> crc32c);

  // Tells from the names and sizes of the copies, without the folder, if it is worth fetching them.
  using MayBeBetter =
      absl::FunctionRef<absl::StatusOr<bool>(const std::map<std::string, int64_t>& copies)>;
  // Tells if the fetched folder at `path` shall replace the damaged one.
  using IsBetter = absl::FunctionRef<absl::StatusOr<bool>(const std::string& path)>;

  // Replaces a damaged folder by the copies, if both functions return true. Returns whether it did
  // so. After a crash, FinishReplacement() completes the replacement. Errors as Run(),
  // and those of the functions.
  absl::StatusOr<bool> ReplaceFolder(const std::string& folder, MayBeBetter may_be_better,
                                     IsBetter is_better);
  // Completes a replacement of the folder that a crash interrupted. Errors as FileSystem.
  absl::Status FinishReplacement(const std::string& folder);

 private:
  std::string MarkPath() const;
  // Returns the peer's list of the files to fetch, with valid names and sizes.
  absl::StatusOr<ListCopiesReply> List();
  // Writes the copy to the file in `directory`. `crc32c`: the required checksum; nullopt if
  // unknown.
  absl::Status Fetch(const CopiedFile& file, const std::string& directory,
                     std::optional<uint32_t> crc32c);
  // Where ReplaceFolder() collects the files, and the list of their names when they are complete.
  std::string Collected() const;
  std::string ReadyPath() const;
  // Removes the files in a directory, except those in `kept`.
  absl::Status RemoveFiles(const std::string& directory, const std::set<std::string>& kept);
  // Returns the checksum.
  absl::StatusOr<uint32_t> Receive(const CopiedFile& file, WritableFile* out);
  absl::Status OfPeer(const absl::Status& status) const;

  const Options options_;
  std::string need_;  // why the peer's files are needed
};

}  // namespace torchps
