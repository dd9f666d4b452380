#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/common/check.h"
#include "torchps/common/mutex.h"
#include "torchps/common/process/system_random.h"
#include "torchps/server/parked/replies.h"
#include "torchps/server/push_log/log_reader.h"
#include "torchps/server/push_log/log_record.h"
#include "torchps/server/push_log/log_segment.h"
#include "torchps/storage/file_system.h"
#include "torchps/transport/frame_payload.h"

namespace torchps {

// Byte buffer that keeps its memory when cleared. New memory would cost page faults, and a vector's
// resize would zero it first. Not thread-safe.
class LogBuffer {
 public:
  size_t size() const { return size_; }
  uint8_t* data() { return bytes_.get(); }
  absl::string_view view() const { return {reinterpret_cast<const char*>(bytes_.get()), size_}; }

  // Appends `bytes` uninitialized bytes and returns their address. May move the existing bytes.
  uint8_t* Extend(size_t bytes) {
    if (size_ + bytes > capacity_) {
      capacity_ = std::max({size_ + bytes, 2 * capacity_, kLeastBytes});
      void* const moved = std::realloc(bytes_.release(), capacity_);
      TPS_CHECK(moved != nullptr, "no memory for the push log's buffer");
      bytes_.reset(static_cast<uint8_t*>(moved));
    }
    uint8_t* const begin = bytes_.get() + size_;
    size_ += bytes;
    return begin;
  }

  void Clear() { size_ = 0; }

 private:
  static constexpr size_t kLeastBytes = 64 << 10;

  struct Free {
    void operator()(uint8_t* bytes) const { std::free(bytes); }
  };

  std::unique_ptr<uint8_t, Free> bytes_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// Copies a push log to another server, and reports progress to PushLog::RaiseCopied. Implemented by
// JobBackup. Thread-safe.
class LogCopier {
 public:
  virtual ~LogCopier() = default;

  // Called by PushLog after each write, on the thread that wrote, without a lock held. Must be
  // fast.
  virtual void Wake() = 0;
  // Called by JobLog::Stop, on the thread that stops the log. Waits for a call of RaiseCopied in
  // progress; no further call follows. Idempotent.
  virtual void Stop() = 0;
};

// Logs the changes of a server's blocks. The thread that changes a block appends the change, which
// only copies it into memory. The log's thread (log_thread.h) writes and syncs the appended records
// in groups. Calls that wait for the disk are stored continuations.
//
// Thread-safe. Methods may be called under a block's lock, except Flush, WriteGroup, RaiseCopied
// and DropThrough. Invariant: a continuation of WhenDurable runs only when all records appended
// before the call are safe: on disk, and in the copy if the log is copied. Append never fails and
// never waits. If the disk is slow, records stay in memory; callers limit that with WhenRoom.
class PushLog {
 public:
  using Continuation = Watermark::Continuation;
  using WaiterId = Watermark::WaiterId;

  struct Options {
    std::string directory;
    LogIdentity identity;
    // Limit for the bytes of records that are not safe yet. Above it, WhenRoom makes callers wait.
    int64_t buffer_bytes = int64_t{32} << 20;
    // Free bytes that the log leaves on the disk for the next checkpoint. Without room for it, a
    // full log could never be shortened.
    int64_t reserve_bytes = 0;
    // A longer log wants a checkpoint.
    int64_t checkpoint_bytes = std::numeric_limits<int64_t>::max();
    // Outlives this object; null: the log is not copied.
    LogCopier* copier = nullptr;
    // Returns a random salt for each segment (log_segment.h), which must not be guessable.
    std::function<uint64_t()> draw_salt = SystemRandom;
  };

  struct Figures {
    uint64_t records = 0;  // appended
    uint64_t bytes = 0;
    uint64_t syncs = 0;   // groups written
    std::string trouble;  // error of the last write; empty if it succeeded
  };

  // The part of the log that is on disk.
  struct Extent {
    struct Segment {
      uint64_t number = 0;
      int64_t bytes = 0;  // valid bytes
    };
    // The segments on disk. A last segment that is still empty is left out, because the log may
    // create it again. After a restart, the last segment includes the records that the next segment
    // will repeat, so that their copies stay until then.
    std::vector<Segment> segments;
    uint64_t sequence = 0;  // of the last record
  };

  // Continues the log after `end` (ReadPushLog) and creates the directory. Records that may not be
  // on disk are written again, to a new segment. `files` outlives this object. Errors as
  // FileSystem. Ignores a full disk or an I/O error on a new file, because the disk may recover.
  static absl::StatusOr<std::unique_ptr<PushLog>> Open(FileSystem* files, Options options,
                                                       const LogEnd& end);
  ~PushLog();
  PushLog(const PushLog&) = delete;
  PushLog& operator=(const PushLog&) = delete;

  // Appends a copy of the record and the payload. Assigns `sequence` and `durable_sequence`, and
  // ignores their values in `record`.
  void Append(LogRecord record, const FramePayload& payload);

  // Stores `continuation` until all records appended so far are safe. Returns 0 if they are safe
  // already; `continuation` does not run then.
  WaiterId WhenDurable(Continuation continuation);
  // Stores `continuation` until at most `buffer_bytes` are not safe. Returns 0 if that is so
  // already; `continuation` does not run then.
  WaiterId WhenRoom(Continuation continuation);
  // Forgets a waiter that has not started.
  void CancelDurable(WaiterId id);
  void CancelRoom(WaiterId id);

  // Starts a new segment for later records. Returns the sequence of the last record before it.
  uint64_t Rotate();
  // Removes the segments that contain only records up to `sequence`, oldest first. Must not be
  // called on two threads at the same time. Errors as FileSystem; the next call removes the
  // remaining segments.
  absl::Status DropThrough(uint64_t sequence);

  // True if a checkpoint should shorten the log: it is longer than `checkpoint_bytes`, or than the
  // room that it still has on the disk.
  bool wants_checkpoint() const { return wants_checkpoint_.load(std::memory_order_relaxed); }

  // Writes, on the calling thread, all records that were appended so far, if needed into the
  // reserve, because a checkpoint calls this. Returns when they are on disk, and the segment that
  // Rotate() began exists. Errors as FileSystem; the records are kept.
  absl::Status Flush();

  Figures figures() const;

  // The part of the log to copy.
  Extent extent() const;
  // Called when the copy contains all records up to `sequence`. Runs the continuations that are
  // due.
  // REQUIRES: `copier` is not null.
  void RaiseCopied(uint64_t sequence);

  // Writes and syncs the appended records and runs the continuations that are due. Returns false if
  // there were no records. RESOURCE_EXHAUSTED: only the reserve is left, and the log has records
  // that a checkpoint would drop. Otherwise errors as
  // FileSystem. After an error the records are kept, and the caller retries later.
  absl::StatusOr<bool> WriteGroup() { return WriteGroup(/*into_reserve=*/false); }

  // --- For the log's thread ---

  // Blocks until there may be records to write, at most for `patience`.
  void AwaitWork(absl::Duration patience);
  // Makes AwaitWork return.
  void Wake();

 private:
  // Records that are written together.
  struct Group {
    LogBuffer records;
    uint64_t first_sequence = 0;
    uint64_t last_sequence = 0;     // first_sequence - 1 if empty
    uint64_t durable_sequence = 0;  // the last safe record when the write began
    int64_t end_bytes = 0;          // total bytes appended up to the end of the group
    bool begins_segment = false;
  };

  PushLog(FileSystem* files, Options options, const LogEnd& end);

  absl::StatusOr<bool> WriteGroup(bool into_reserve);
  // RESOURCE_EXHAUSTED if the disk would have less than the reserve after all appended records are
  // written. Updates wants_checkpoint().
  absl::Status CheckRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Updates wants_checkpoint(). Returns true if the log on disk has records.
  bool JudgeLength() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Opens the next group for appending, in `buffer`.
  void BeginGroup(LogBuffer buffer, bool begins_segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the next group to current_. Returns false if there is no group to write.
  bool TakeGroup() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Completes the records for the segment that they are written to. The log's thread does this
  // rather than the appending thread, which is on the path of a push. So the checksum is computed
  // from the copied bytes, and is right even if their source changed during the copy.
  static void Seal(Group* group, uint64_t salt);
  absl::Status WriteOut(Group* group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Returns the continuations that are due after a write or a copy.
  std::vector<Continuation> RaiseSafe() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Creates a new segment that begins with this group.
  absl::Status OpenSegment(Group* group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);

  FileSystem* const files_;
  const Options options_;

  // Held while a group is written.
  Mutex write_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  std::unique_ptr<WritableFile> file_ ABSL_GUARDED_BY(write_mutex_);
  // Bytes of the last segment that are on disk.
  int64_t segment_bytes_ ABSL_GUARDED_BY(write_mutex_) = 0;
  uint64_t salt_ ABSL_GUARDED_BY(write_mutex_) = 0;  // of the open segment
  // The group that is being written, or that failed and will be retried.
  std::optional<Group> current_ ABSL_GUARDED_BY(write_mutex_);

  mutable Mutex mutex_;
  CondVar work_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<LogSegmentHeader> segments_ ABSL_GUARDED_BY(mutex_);
  std::deque<Group> groups_ ABSL_GUARDED_BY(mutex_);  // never empty; the last one receives records
  LogBuffer spare_ ABSL_GUARDED_BY(mutex_);
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;  // of the last record
  int64_t appended_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool segment_is_due_ ABSL_GUARDED_BY(mutex_) = false;  // Rotate() was called, and it is not open
  int64_t written_bytes_ ABSL_GUARDED_BY(mutex_) = 0;    // the part of appended_bytes_ on disk
  // Bytes that the log may still write, as last seen.
  int64_t room_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::max();
  std::atomic<bool> wants_checkpoint_{false};
  uint64_t durable_ ABSL_GUARDED_BY(mutex_) = 0;  // the last sequence on disk
  // Bytes of the last segment that are on disk; readable without write_mutex_.
  int64_t durable_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Bytes of LogEnd::tail behind durable_bytes_, until the next segment repeats them.
  int64_t tail_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t copied_ ABSL_GUARDED_BY(mutex_) = 0;   // the last sequence in the copy
  Watermark safe_ ABSL_GUARDED_BY(mutex_);        // the last safe sequence
  Watermark safe_bytes_ ABSL_GUARDED_BY(mutex_);  // the safe part of appended_bytes_
  // Sequence and end_bytes of groups that are on disk but not safe yet.
  std::deque<std::pair<uint64_t, int64_t>> unsafe_ ABSL_GUARDED_BY(mutex_);
  Figures figures_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
