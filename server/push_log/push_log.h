#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "common/process/system_random.h"
#include "server/parked/watermark.h"
#include "server/push_log/log_buffer.h"
#include "server/push_log/log_reader.h"
#include "server/push_log/log_record.h"
#include "server/push_log/log_segment.h"
#include "storage/file_system.h"
#include "wire/frame_payload.h"

namespace torchps {

// The log of all changes of a server's blocks. The thread that changes a block appends the change,
// which only copies it into memory. The log's own thread (log_thread.h) writes and syncs all that
// has come meanwhile in one go; a call that waits for that is a stored continuation.
//
// Thread-safe; may be called under a block's lock, but for Flush, WriteGroup, RaiseCopied and
// DropThrough. Invariant: a continuation of WhenDurable runs only when every record appended before
// it was asked for is safe: on the disk and, where the log is copied, in the copy, too. Appending
// never fails and never waits: what the disk does not take stays in memory, and a caller with more
// asks WhenRoom before.
class PushLog {
 public:
  using Continuation = Watermark::Continuation;
  using WaiterId = Watermark::WaiterId;

  struct Options {
    std::string directory;
    LogIdentity identity;
    // What may be in memory and not safe before WhenRoom makes wait.
    int64_t buffer_bytes = int64_t{32} << 20;
    // Somebody copies the log, and tells how far by RaiseCopied.
    bool is_copied = false;
    // Hears that more is on the disk; under no lock, on the thread that wrote it. May be null.
    std::function<void()> written;
    // Draws the salt of each segment (log_segment.h), which nobody else may be able to guess.
    std::function<uint64_t()> draw_salt = SystemRandom;
  };

  struct Figures {
    uint64_t records = 0;  // appended
    uint64_t bytes = 0;
    uint64_t syncs = 0;   // groups
    std::string trouble;  // why the last try to write failed; empty: it did not
  };

  // How far the log is on the disk.
  struct Extent {
    struct Segment {
      uint64_t number = 0;
      int64_t bytes = 0;  // that count
    };
    // But for a last one that has no record yet: it may be made anew.
    std::vector<Segment> segments;
    uint64_t sequence = 0;  // of the last record
  };

  // Goes on where `end` (ReadPushLog) says that the log ends; makes the directory. What is not
  // known to be on the disk is written again, to a new segment. `files` outlives this object.
  // Errors are the file system's; a disk that is full or gives I/O errors is none, if only new
  // files are concerned: it may recover.
  static absl::StatusOr<std::unique_ptr<PushLog>> Open(FileSystem* files, Options options,
                                                       const LogEnd& end);
  ~PushLog();
  PushLog(const PushLog&) = delete;
  PushLog& operator=(const PushLog&) = delete;

  // Numbers the record (its sequences are not looked at) and keeps a copy of it and the payload.
  void Append(LogRecord record, const FramePayload& payload);

  // Stores `continuation` until all that has been appended so far is safe; 0 if it is already: then
  // it will not run.
  WaiterId WhenDurable(Continuation continuation);
  // The same until the buffer has room for more.
  WaiterId WhenRoom(Continuation continuation);
  // Forgets a waiter that has not begun to run.
  void CancelDurable(WaiterId id);
  void CancelRoom(WaiterId id);

  // What is appended from now on goes into a new segment. The sequence of the last record before.
  uint64_t Rotate();
  // Removes the segments that hold only records up to `sequence`, the oldest first. One call at a
  // time. Errors are the file system's; what is left then goes with the next call.
  absl::Status DropThrough(uint64_t sequence);

  // Returns when all that has been appended so far is on the disk: writes it here, as the log's
  // thread does. An error is the disk's; nothing is lost.
  absl::Status Flush();

  Figures figures() const;

  // What is to be copied.
  Extent extent() const;
  // The copy has all up to this sequence. Runs the continuations that are due. REQUIRES: is_copied.
  void RaiseCopied(uint64_t sequence);

  // Writes and syncs what has been appended, and runs the continuations that are due. False: there
  // is nothing to write. An error is the disk's: nothing is lost, call again later.
  absl::StatusOr<bool> WriteGroup();

  // --- For the log's thread ---

  // Returns when there may be something to write, at the latest after `patience`.
  void AwaitWork(absl::Duration patience);
  // Makes AwaitWork return.
  void Wake();

 private:
  // Records that are written together.
  struct Group {
    LogBuffer records;
    uint64_t first_sequence = 0;
    uint64_t last_sequence = 0;     // first_sequence - 1 where there are none
    uint64_t durable_sequence = 0;  // when its turn came, all up to there was safe
    int64_t end_bytes = 0;          // appended up to its end, over the life of this object
    bool begins_segment = false;
  };

  PushLog(FileSystem* files, Options options, const LogEnd& end);

  // Opens the next group to append to, in `buffer`.
  void BeginGroup(LogBuffer buffer, bool begins_segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether there is a group to write now, taken over into current_.
  bool TakeGroup() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Completes the records for the segment that they are about to go to. Here and not where they
  // were appended: this thread has the time, and what is summed up is what is written, whoever
  // could still change what it was copied from.
  static void Seal(Group* group, uint64_t salt);
  absl::Status WriteOut(Group* group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // What is due now that more is on the disk, or in the copy.
  std::vector<Continuation> RaiseSafe() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A new segment that begins with this group.
  absl::Status OpenSegment(Group* group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);

  FileSystem* const files_;
  const Options options_;

  // Held while a group is written.
  Mutex write_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  std::unique_ptr<WritableFile> file_ ABSL_GUARDED_BY(write_mutex_);
  // Of the last segment, as far as they are on the disk.
  int64_t segment_bytes_ ABSL_GUARDED_BY(write_mutex_) = 0;
  uint64_t salt_ ABSL_GUARDED_BY(write_mutex_) = 0;  // of the segment that is open
  // What is being written, or could not be.
  std::optional<Group> current_ ABSL_GUARDED_BY(write_mutex_);

  mutable Mutex mutex_;
  CondVar work_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<LogSegmentHeader> segments_ ABSL_GUARDED_BY(mutex_);
  std::deque<Group> groups_ ABSL_GUARDED_BY(mutex_);  // never empty; the last one takes records
  LogBuffer spare_ ABSL_GUARDED_BY(mutex_);
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;  // of the last record
  int64_t appended_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t durable_ ABSL_GUARDED_BY(mutex_) = 0;  // sequence: on the disk
  // Of the last segment, of which segment_bytes_ is the writer's.
  int64_t durable_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t copied_ ABSL_GUARDED_BY(mutex_) = 0;   // sequence: in the copy
  Watermark safe_ ABSL_GUARDED_BY(mutex_);        // sequences
  Watermark safe_bytes_ ABSL_GUARDED_BY(mutex_);  // of appended_bytes_
  // Sequence and end_bytes of groups that are on the disk and not safe yet.
  std::deque<std::pair<uint64_t, int64_t>> unsafe_ ABSL_GUARDED_BY(mutex_);
  Figures figures_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
