#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/process/system_random.h"
#include "proto/parameter_service.pb.h"
#include "server/push_log/log_thread.h"
#include "server/push_log/push_log.h"
#include "server/store/block_journal.h"
#include "server/store/job_storage.h"
#include "server/store/parameter_store.h"
#include "storage/file_system.h"

namespace torchps {

// The push log of one server's part of a job: brings back what the log has beyond the checkpoint,
// then records every change, so that no push is acknowledged before it is on the disk.
//
// Thread-safe. Owned by the JobStorage. Continuations run on its own thread or that of Flush or
// RaiseCopied, none after Stop(); what they need outlives it.
class JobLog final : public BlockJournal {
 public:
  struct Options {
    FileSystem* files = nullptr;  // borrowed, as the clock
    const Clock* clock = nullptr;
    std::string directory;        // of this log alone
    bool has_checkpoint = false;  // the store has been restored from one
    int64_t buffer_bytes = int64_t{32} << 20;
    std::function<uint64_t()> draw_salt = SystemRandom;  // as PushLog
    bool is_copied = false;                              // as PushLog
    std::function<void()> written;                       // as PushLog
    // Ends whatever calls RaiseCopied(); runs in Stop(). May be null.
    std::function<void()> stop_copying;
    // Without it the owner calls WriteGroup(), as the simulator does in its own time.
    bool has_thread = true;
    // Takes one line for people, on any thread.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
  };

  // Brings the blocks up to the log's end. DATA_LOSS: the log is damaged, or does not begin where
  // the checkpoint ends; otherwise as ReadPushLog and PushLog::Open. `store` is used only here.
  static absl::StatusOr<std::unique_ptr<JobLog>> Open(const Options& options, const JobShare& share,
                                                      ParameterStore* store);

  // Whether there was a log, and the records of it that were not in the blocks yet.
  bool existed() const { return existed_; }
  uint64_t replayed() const { return replayed_; }

  void Record(const Block& block, const BlockRecord& record) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  void WhenDurable(std::function<void()> continuation) override;
  RoomId WhenRoom(std::function<void()> continuation) override;
  void CancelRoom(RoomId id) override;
  // Writes what is left, if the disk takes it.
  void Stop() override;

  // Around a checkpoint, as PushLog: Rotate() before the first block is copied, Flush() after the
  // last one; when the checkpoint is complete and read back, DropThrough() what Rotate() returned.
  uint64_t Rotate() { return log_->Rotate(); }
  absl::Status Flush() { return log_->Flush(); }
  absl::Status DropThrough(uint64_t sequence) { return log_->DropThrough(sequence); }

  // For who copies the log, as PushLog.
  PushLog::Extent extent() const { return log_->extent(); }
  void RaiseCopied(uint64_t sequence) { log_->RaiseCopied(sequence); }

  // What the log's thread does, where there is none. As PushLog.
  absl::StatusOr<bool> WriteGroup() { return log_->WriteGroup(); }

  // Fills in what the log has written and, where it cannot write, why.
  void Describe(DurabilityStatus* status) const;

 private:
  JobLog() = default;

  bool existed_ = false;
  uint64_t replayed_ = 0;
  std::function<void()> stop_copying_;
  std::unique_ptr<PushLog> log_;
  std::unique_ptr<LogThread> thread_;
};

}  // namespace torchps
