#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/log_line.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/backup/backup_mirror.h"
#include "torchps/server/backup/backup_peer.h"

namespace torchps {

// Runs the thread that sends a server's files to the backup server (backup_mirror.h), as fast as
// that server accepts them. After an error it retries once a second.
//
// Thread-safe. Calls `tell` and the CopiedLog on this thread, and never after Stop().
class BackupReplicator {
 public:
  struct Options {
    BackupMirror::Options mirror;
    // Must outlive this.
    const Clock* clock = nullptr;
    // Receives one message when copying fails, and one when it works again.
    LogLine tell = IgnoreLine;
    // Keep() returns an error once copying has failed for this long.
    absl::Duration patience = absl::Seconds(20);
    // False: the caller runs Step(), as the simulator does, and Keep() does not wait.
    bool has_thread = true;
  };
  // Files from before a restart. Existing copies of files in complete checkpoints stay valid. The
  // other files are sent again.
  struct Kept {
    std::vector<std::string> complete;
    std::vector<std::string> others;
  };
  BackupReplicator(Options options, const Kept& kept);
  // Calls Stop().
  ~BackupReplicator();
  BackupReplicator(const BackupReplicator&) = delete;
  BackupReplicator& operator=(const BackupReplicator&) = delete;

  // Blocks until copies of the files exist (see BackupMirror::Want). Returns UNAVAILABLE with the
  // reason if copying keeps failing for longer than `patience`, NOT_FOUND if a local file was
  // removed, and CANCELLED after Abandon() or Stop().
  absl::Status Keep(const std::vector<std::string>& files, bool complete,
                    BackupMirror::Version version);
  // Same as Keep(), without waiting.
  void Send(const std::string& file, bool complete, BackupMirror::Version version);
  // Drops the copies of all whole files that are not in `files`.
  void KeepOnly(std::vector<std::string> files);
  // Wakes the thread because the log changed.
  void Wake();
  // Makes one step without the thread. Returns false if everything is copied, CANCELLED after
  // Stop(), and otherwise the errors of BackupMirror::Step().
  absl::StatusOr<bool> Step();

  // Makes Keep() return CANCELLED.
  void Abandon();
  // Stops the thread. Idempotent.
  void Stop();

  // Fills in the copied and remaining bytes, and the current error.
  void Describe(DurabilityStatus* status) const;

 private:
  using Change = std::function<void(BackupMirror&)>;

  void Post(Change change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();
  // Returns false if the thread must stop.
  bool TakeChanges();
  bool HasStopped() const;
  // Publishes the result of a step to waiting callers.
  void Publish(const absl::Status& status);
  void AwaitNextTry();
  // Returns the error message with the time since the first failure.
  std::string Trouble() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  BackupMirror mirror_;    // used only by thread_
  uint64_t reported_ = 0;  // used only by thread_: the last position passed to the log

  mutable Mutex mutex_;
  CondVar wakes_;    // wakes thread_
  CondVar changed_;  // wakes Keep()
  std::deque<Change> changes_ ABSL_GUARDED_BY(mutex_);
  uint64_t posted_ ABSL_GUARDED_BY(mutex_) = 0;  // number of changes posted
  // Number of posted changes that the last published step included.
  uint64_t applied_ ABSL_GUARDED_BY(mutex_) = 0;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::string> awaited_ ABSL_GUARDED_BY(mutex_);  // files that Keep() waits for
  std::set<std::string> there_ ABSL_GUARDED_BY(mutex_);    // copied files among awaited_
  std::set<std::string> gone_ ABSL_GUARDED_BY(mutex_);     // removed files among awaited_
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  absl::Duration failing_since_ ABSL_GUARDED_BY(mutex_);
  uint64_t copied_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t uncopied_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace torchps
