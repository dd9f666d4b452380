#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Describes an append-only file that is flushed up to `bytes` on this server's disk.
struct GrowingFile {
  std::string file;  // path below the server's directory
  int64_t bytes = 0;
};

// Describes a log to copy: the files in order, and the log position at the end of the last file.
struct GrowingLog {
  std::vector<GrowingFile> files;
  uint64_t position = 0;
};

// A log that is copied while it grows. Implemented by JobBackup for the push log. Called on the
// replicator's thread (backup_replicator.h), without a lock held.
class CopiedLog {
 public:
  virtual ~CopiedLog() = default;

  // Called by BackupMirror. Returns the log as it is on disk now. While the server runs, the
  // existing bytes of a named file never change.
  virtual GrowingLog GetExtent() const = 0;
  // Called by BackupReplicator when the log and the files before it are copied up to `position`.
  virtual void RaiseCopied(uint64_t position) = 0;
};

// Mirrors this server's files to the peer, one piece of at most 1 MiB at a time. It copies whole
// files, which get their name on the peer once complete, and the growing files of a log. It asks
// for the peer's list of copies at first and after each error. So it resumes at the end of the
// copies after a restart of either server.
//
// It copies in the order that recovery needs: first the files of complete checkpoints, then the
// log, then the files of incomplete checkpoints. So the peer never holds a shard without the log of
// the updates in that shard. position() rises to a log position only after the complete checkpoints
// and the log up to that position are copied.
//
// Not thread-safe. Uses memory for one piece.
class BackupMirror {
 public:
  struct Options {
    // All must outlive this. `log` is null if there is no log.
    FileSystem* files = nullptr;
    BackupPeer* peer = nullptr;
    CopiedLog* log = nullptr;
    std::string directory;
    uint64_t job_id = 0;
    int server_index = 0;
  };
  explicit BackupMirror(Options options);

  // States which existing copies of a file are still valid.
  enum class Version {
    kNew,   // none, because the file was just written
    kSame,  // the copy of the previous Want() for this file
    kKept,  // also a copy from before a restart, if the size matches
  };
  // Requests a copy of `file`. Files of a complete checkpoint are copied before the log.
  void Want(const std::string& file, bool complete, Version version);
  // Drops all whole files that are not in `files`, here and at the peer.
  void WantOnly(const std::vector<std::string>& files);
  bool Wants(const std::string& file) const { return Find(file) != nullptr; }
  // Returns true if the copy of `file` is known to be complete.
  bool IsThere(const std::string& file) const;

  // Performs one step. Returns false if everything is copied. After an error, the next call asks
  // for the peer's list again, and copies stay valid. The error message names the failing side.
  absl::StatusOr<bool> Step();

  // Returns the position up to which the log and the files before it are copied. Never falls.
  uint64_t position() const { return position_; }
  // Counts the bytes that are copied and those that are not.
  void CountBytes(uint64_t* copied, uint64_t* uncopied) const;

 private:
  struct Whole {
    std::string file;
    bool complete = false;
    bool kept = false;
    bool there = false;
    int64_t bytes = 0;  // as last seen
  };
  struct Growth {
    int64_t copied = 0;
    bool replaces = false;  // the peer holds a different file; replace it as a whole
  };
  // The transfer of a whole file that is larger than one piece.
  struct Upload {
    std::string file;
    std::unique_ptr<ReadableFile> source;
    int64_t bytes = 0;  // total size to send
    int64_t sent = 0;
  };

  absl::StatusOr<bool> TryStep();
  // Compares the local files with the peer's list.
  absl::Status Meet();
  absl::Status MeetGrowing(const GrowingFile& file, int64_t there, Growth* growth);
  absl::StatusOr<bool> HasSameHead(const std::string& file) const;
  void TakeTarget();
  absl::Status DropSome();
  // Returns the next whole file to send, or null if all are copied. `complete` selects complete or
  // incomplete checkpoints. In incomplete ones, small files come first, then the large file in
  // transfer, then other large files.
  Whole* Next(bool complete);
  // Sends one piece of the file Next(complete). Returns false if there is no such file.
  absl::StatusOr<bool> SendWhole(bool complete);
  absl::StatusOr<bool> SendLog();
  // Sends the next piece of the first `bytes` bytes of `file`, or of the whole file if `bytes` is
  // -1. Sets `size` to the number of bytes to send in all. Returns true once all are sent.
  absl::StatusOr<bool> SendUpload(const std::string& file, int64_t bytes, int64_t* size);
  absl::Status SendPiece(const ReadableFile& source, const std::string& file, int64_t whole_bytes,
                         int64_t offset, int64_t end, int64_t* reached);

  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& file) const;
  CopiedFile Copied(const std::string& file, int64_t bytes) const;
  absl::Status OfPeer(const absl::Status& status) const;
  const Whole* Find(const std::string& file) const;
  Whole* Find(const std::string& file);

  const Options options_;
  bool met_ = false;
  bool has_stumbled_ = false;  // the last step found the peer in an unexpected state
  std::vector<Whole> wholes_;
  std::map<std::string, Growth> growths_;
  GrowingLog target_;
  std::vector<std::string> superfluous_;
  Upload upload_;
  uint64_t position_ = 0;
  StoreCopyRequest piece_;
};

}  // namespace torchps
