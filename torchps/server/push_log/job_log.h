#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/common/clock.h"
#include "torchps/common/log_line.h"
#include "torchps/common/process/system_random.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/push_log/log_reader.h"
#include "torchps/server/push_log/log_thread.h"
#include "torchps/server/push_log/push_log.h"
#include "torchps/server/store/block_journal.h"
#include "torchps/server/store/job_storage.h"
#include "torchps/server/store/parameter_store.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Push log of one server's part of a job. Replays the records that the checkpoint lacks, then
// records each change, so that a push is acknowledged only when it is on disk.
//
// Thread-safe. Owned by the JobStorage. Continuations run on the log's thread, or inside Flush or
// RaiseCopied, but not after Stop(). Objects that they use must outlive this object.
class JobLog final : public BlockJournal {
 public:
  struct Options {
    FileSystem* files = nullptr;  // borrowed, like the clock
    const Clock* clock = nullptr;
    std::string directory;        // used by this log only
    bool has_checkpoint = false;  // the store was restored from a checkpoint
    int64_t buffer_bytes = int64_t{32} << 20;
    int64_t reserve_bytes = 0;                                       // as PushLog::Options
    int64_t checkpoint_bytes = std::numeric_limits<int64_t>::max();  // as PushLog::Options
    std::function<uint64_t()> draw_salt = SystemRandom;              // as PushLog::Options
    LogCopier* copier = nullptr;                                     // as PushLog::Options
    // Called if the log is damaged, or ends with an incomplete record; `end` is the result of
    // reading it. Replaces it, if possible, by a log with records after `last_sequence`, the last
    // intact one, and returns true. Null: there is no replacement.
    std::function<absl::StatusOr<bool>(const LogIdentity& identity, uint64_t last_sequence,
                                       const absl::StatusOr<LogEnd>& end)>
        replace;
    // False: the owner calls WriteGroup(), as the simulator does in simulated time.
    bool has_thread = true;
    // Receives one line for people, on any thread.
    LogLine log = IgnoreLine;
  };

  // Replays the log into the store. DATA_LOSS: the log is damaged, or begins after the checkpoint
  // ends. Otherwise as ReadPushLog and PushLog::Open. `store` is used only by this call.
  static absl::StatusOr<std::unique_ptr<JobLog>> Open(const Options& options, const JobShare& share,
                                                      ParameterStore* store);

  // True if Open() found a log.
  bool existed() const { return existed_; }
  // Number of log records that Open() applied, because the blocks lacked them.
  uint64_t replayed() const { return replayed_; }

  void Record(const Block& block, const BlockRecord& record) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  void WhenDurable(std::function<void()> continuation) override;
  RoomId WhenRoom(std::function<void()> continuation) override;
  void CancelRoom(RoomId id) override;
  // Writes the remaining records if the disk works.
  void Stop() override;

  // For checkpoints; each calls the PushLog method of the same name. Call Rotate() before the first
  // block is copied, and Flush() after the last block is copied. When the checkpoint is complete
  // and verified, call DropThrough() with the result of Rotate().
  uint64_t Rotate() { return log_->Rotate(); }
  absl::Status Flush() { return log_->Flush(); }
  absl::Status DropThrough(uint64_t sequence) { return log_->DropThrough(sequence); }
  bool wants_checkpoint() const { return log_->wants_checkpoint(); }

  // For the copy of the log (LogCopier). Both call the PushLog method of the same name.
  PushLog::Extent extent() const { return log_->extent(); }
  void RaiseCopied(uint64_t sequence) { log_->RaiseCopied(sequence); }

  // Does the work of the log's thread if the log runs without a thread. As PushLog::WriteGroup.
  absl::StatusOr<bool> WriteGroup() { return log_->WriteGroup(); }

  // Fills the log's counters and, if writing fails, the error.
  void Describe(DurabilityStatus* status) const;

 private:
  JobLog() = default;

  bool existed_ = false;
  uint64_t replayed_ = 0;
  LogCopier* copier_ = nullptr;
  std::unique_ptr<PushLog> log_;
  std::unique_ptr<LogThread> thread_;
};

}  // namespace torchps
