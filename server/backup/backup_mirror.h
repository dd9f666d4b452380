#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/parameter_service.pb.h"
#include "server/backup/backup_peer.h"
#include "storage/file_system.h"

namespace torchps {

// A file that is appended to, as far as it is on this server's disk.
struct GrowingFile {
  std::string file;  // its path below the server's directory
  int64_t bytes = 0;
};

// A log that is to be copied: its files in their order, and the position that they reach.
struct GrowingLog {
  std::vector<GrowingFile> files;
  uint64_t position = 0;
};

// Makes the copies at the peer the same as the files here, one piece of at most 1 MiB at a time:
// whole files, each under its name once it is there, and the files of a log as they grow. It knows
// what is there already from the peer's list, which it asks for at first and after everything that
// went wrong; so it goes on where the copies end, whichever side was restarted.
//
// The order is what recovery needs. First what a recovery begins with (checkpoints that are
// complete); then the log; then what will be a part of a checkpoint, so that a shard is never there
// without the log of all that is in it. The log's position counts only when all before it is there.
//
// Not thread-safe. Memory: a piece.
class BackupMirror {
 public:
  struct Options {
    // Outlive this.
    FileSystem* files = nullptr;
    BackupPeer* peer = nullptr;
    std::string directory;
    uint64_t job_id = 0;
    int server_index = 0;
    // The log as it is on the disk now; null: there is none. Beginnings of its files never change
    // under their names, but between two lives.
    std::function<GrowingLog()> log;
  };
  explicit BackupMirror(Options options);

  // Which copy will do.
  enum class Version {
    kNew,   // none that is there: the file has just been written
    kSame,  // that which was wanted before, if it was
    kKept,  // also that of a life before this one, if it has the file's size
  };
  // A copy of the file is to be there. One of a complete checkpoint comes before the log.
  void Want(const std::string& file, bool complete, Version version);
  // No other whole files are to be there than those that stay.
  void WantOnly(const std::vector<std::string>& files);
  bool Wants(const std::string& file) const { return Find(file) != nullptr; }
  // As far as is known.
  bool IsThere(const std::string& file) const;

  // Does one thing. False: there is nothing to do. An error says which side's it is, for people;
  // nothing is lost, and the next call begins with the peer's list.
  absl::StatusOr<bool> Step();

  // Up to where the log is there, with all that it stands on; it never falls.
  uint64_t position() const { return position_; }
  // Bytes that are there, and that are not.
  void CountBytes(uint64_t* copied, uint64_t* uncopied) const;

 private:
  struct Whole {
    std::string file;
    bool complete = false;
    bool kept = false;
    bool there = false;
    int64_t bytes = 0;  // as far as is known
  };
  struct Growth {
    int64_t copied = 0;
    bool replaces = false;  // what is there is another file: a whole new one takes its place
  };
  // A whole file of more than a piece on its way.
  struct Upload {
    std::string file;
    std::unique_ptr<ReadableFile> source;
    int64_t bytes = 0;  // that are to go
    int64_t sent = 0;
  };

  absl::StatusOr<bool> TryStep();
  // Learns from the peer's list what is there.
  absl::Status Meet();
  absl::Status MeetGrowing(const GrowingFile& file, int64_t there, Growth* growth);
  absl::StatusOr<bool> HasSameHead(const std::string& file) const;
  void TakeTarget();
  absl::Status DropSome();
  // The file to go on with. Of those that are not complete a small one passes a large one that is
  // on its way, which others of its size wait for. Null: all are there.
  Whole* Next(bool complete);
  // A piece of it. False: there is none.
  absl::StatusOr<bool> SendWhole(bool complete);
  absl::StatusOr<bool> SendLog();
  // True: all of it is there, so many bytes; `bytes` of it are to be, -1: all that it has.
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
  bool has_stumbled_ = false;  // the last step met a peer that is not as it was
  std::vector<Whole> wholes_;
  std::map<std::string, Growth> growths_;
  GrowingLog target_;
  std::vector<std::string> superfluous_;
  Upload upload_;
  uint64_t position_ = 0;
  StoreCopyRequest piece_;
};

}  // namespace torchps
