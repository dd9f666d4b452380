#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/backup/backup_peer.h"
#include "storage/file_system.h"

namespace torchps {

// Brings a server's files back into its directory from the server that keeps copies of them.
//
// While it is under way a file in the directory says so (server-1.fetching), and whoever finds that
// begins again: half of the files are never taken for all of them. Thread-compatible.
class BackupFetch {
 public:
  struct Options {
    // Outlive this.
    FileSystem* files = nullptr;
    BackupPeer* peer = nullptr;
    std::string directory;
    uint64_t job_id = 0;  // 0: of whichever job there are copies
    int server_index = 0;
    // Hears what is being done, for people, and how many pieces it has; then of each of them.
    std::function<void(const std::string& what, int64_t pieces)> begin = [](const std::string&,
                                                                            int64_t) {};
    std::function<void()> done = [] {};
  };
  explicit BackupFetch(Options options);

  // Whether an earlier try has left the directory as it is to be by halves.
  bool WasBrokenOff() const;

  // Returns the bytes that have come; 0: there are no copies, and the directory is as it was.
  //   UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED  the peer, or the way there: another try may do
  //   FAILED_PRECONDITION  there are copies of more than one job
  //   DATA_LOSS            a copy ends before its end
  //   others               the disk here
  absl::StatusOr<int64_t> Run();

 private:
  std::string MarkPath() const;
  absl::Status Fetch(const CopiedFile& file);
  absl::Status Receive(const CopiedFile& file, WritableFile* out);
  absl::Status OfPeer(const absl::Status& status) const;

  const Options options_;
};

}  // namespace torchps
