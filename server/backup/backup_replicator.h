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
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/parameter_service.pb.h"
#include "server/backup/backup_mirror.h"
#include "server/backup/backup_peer.h"

namespace torchps {

// The thread that sends a server's files to the one that keeps the copies (backup_mirror.h), as
// fast as that one takes them; while it takes nothing, it tries again once a second.
//
// Thread-safe. What it is given is called on its thread, and not after Stop().
class BackupReplicator {
 public:
  struct Options {
    BackupMirror::Options mirror;
    // Outlives this.
    const Clock* clock = nullptr;
    // The log is there up to this position, with all that it stands on. Null: there is no log.
    std::function<void(uint64_t position)> copied;
    // Gets one sentence when nothing gets on any more, and one when it does again.
    std::function<void(const std::string& line)> tell = [](const std::string&) {};
    // For how long Keep() waits for a peer that takes nothing.
    absl::Duration patience = absl::Seconds(20);
  };
  // Files that life before this one may have sent: of checkpoints that are complete, and others,
  // which are sent once more.
  struct Kept {
    std::vector<std::string> complete;
    std::vector<std::string> others;
  };
  BackupReplicator(Options options, const Kept& kept);
  // Stops.
  ~BackupReplicator();
  BackupReplicator(const BackupReplicator&) = delete;
  BackupReplicator& operator=(const BackupReplicator&) = delete;

  // Returns when copies of the files are there, as BackupMirror::Want has it. UNAVAILABLE: the peer
  // has taken nothing for the time of the patience, and why; NOT_FOUND: a file has gone here;
  // CANCELLED: Abandon() or Stop() was called.
  absl::Status Keep(const std::vector<std::string>& files, bool complete,
                    BackupMirror::Version version);
  // The same without waiting.
  void Send(const std::string& file, bool complete, BackupMirror::Version version);
  // No copies of other whole files are to be there.
  void KeepOnly(std::vector<std::string> files);
  // The log may have more, or less.
  void Wake();

  // Lets Keep() end.
  void Abandon();
  // Ends the thread. Idempotent.
  void Stop();

  // Fills in what is copied and what is not, and why nothing gets on.
  void Describe(DurabilityStatus* status) const;

 private:
  using Change = std::function<void(BackupMirror&)>;

  void Post(Change change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();
  // False: the thread is to end.
  bool TakeChanges();
  // Tells all what has become of a step.
  void Publish(const absl::Status& status);
  void AwaitNextTry();
  // "for 12 s now: server 1 at ...: ...".
  std::string Trouble() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  BackupMirror mirror_;  // of the thread
  uint64_t told_ = 0;    // of the thread: the last position that `copied` has heard

  mutable Mutex mutex_;
  CondVar wakes_;    // the thread
  CondVar changed_;  // those that wait for it
  std::deque<Change> changes_ ABSL_GUARDED_BY(mutex_);
  uint64_t posted_ ABSL_GUARDED_BY(mutex_) = 0;  // changes that were
  uint64_t applied_ ABSL_GUARDED_BY(mutex_) =
      0;  // of them, before the last step that was published
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::string> awaited_ ABSL_GUARDED_BY(mutex_);  // by Keep()
  std::set<std::string> there_ ABSL_GUARDED_BY(mutex_);    // of them
  std::set<std::string> gone_ ABSL_GUARDED_BY(mutex_);     // of them
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  absl::Duration failing_since_ ABSL_GUARDED_BY(mutex_);
  uint64_t copied_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t uncopied_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace torchps
