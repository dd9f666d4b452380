#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/tools/report/cluster_client.h"

namespace torchps {

// Measures how long workers stall during faults. For each kind of fault, counts the faults and
// finds the longest time without progress of a worker that the fault did not hit. The resolution is
// that of the progress reports, a few per second. Times use one clock and must not decrease. Not
// thread-safe.
class StallWatch {
 public:
  void OnProgress(int worker, absl::Duration now);
  // The worker has finished; it does not stall from now on.
  void OnDone(int worker, absl::Duration now);

  // Records that a fault of this kind begins; `hit` are the affected workers. Returns a number for
  // End(). For an instantaneous fault, call End() at once.
  int Begin(absl::string_view kind, std::set<int> hit, absl::Duration now);
  void End(int fault, absl::Duration now);

  struct Figures {
    int times = 0;
    // Unset if the faults hit every worker, or no other worker reported progress afterwards.
    std::optional<absl::Duration> longest_stall;
  };
  const std::map<std::string, Figures>& by_kind() const { return by_kind_; }
  // The longest stall of any worker, whether or not a fault hit it.
  absl::Duration longest_stall() const { return longest_; }

 private:
  struct Episode {
    std::string kind;
    std::set<int> hit;
    absl::Duration began;
    absl::Duration ended = absl::InfiniteDuration();
  };

  std::vector<Episode> episodes_;  // indexed by number
  std::map<int, absl::Duration> last_progress_;
  std::map<std::string, Figures> by_kind_;
  absl::Duration longest_ = absl::ZeroDuration();
};

// Tracks when the copies (durability.copies) are complete again after a server lost the disk, so
// that the drill may destroy another one. The copies are complete when the servers listen, and each
// server has since acknowledged a push or, without a log, completed a checkpoint. A server does
// neither until its copies are in place.
//
// Not thread-safe.
class BackupWatch {
 public:
  using Connect = std::function<std::unique_ptr<ClusterClient>(std::vector<std::string>)>;

  // `has_log` is true if durability.level is LOG.
  BackupWatch(int servers, bool has_log, Connect connect);

  // Called when a server dies, dies and loses the disk, or starts to listen.
  void OnDeath(int server);
  void OnLoss(int server);
  void OnReturn(int server, const std::string& address);

  // Returns true if the copies are complete. Waits up to `patience` for each server's answer. If it
  // returns false, call it again: the servers must make progress between two calls.
  bool AreWhole(absl::Duration patience);

 private:
  // Returns each server's progress, or nullopt if a server does not answer.
  std::optional<std::vector<uint64_t>> Look(absl::Duration patience);

  const bool has_log_;
  const Connect connect_;
  bool has_lost_ = false;                  // lost a disk, and copies are not complete since
  std::vector<std::string> addresses_;     // by server; empty if it does not listen
  std::unique_ptr<ClusterClient> client_;  // connected to the servers
  // The progress at the first call after the servers came back.
  std::optional<std::vector<uint64_t>> before_;
};

// Watches restarted servers until each has applied a push. Polls on a background thread.
// Thread-safe. Borrows the clock.
class RecoveryWatch {
 public:
  struct Recovery {
    int server = 0;
    absl::Duration died_at;                 // clock time
    std::optional<absl::Duration> listens;  // time from died_at
    std::optional<absl::Duration> applies;  // first push; time from died_at
  };
  using Connect = std::function<std::unique_ptr<ClusterClient>(std::vector<std::string>)>;

  RecoveryWatch(Connect connect, const Clock& clock);
  ~RecoveryWatch();
  RecoveryWatch(const RecoveryWatch&) = delete;
  RecoveryWatch& operator=(const RecoveryWatch&) = delete;

  void OnDeath(int server, absl::Duration now);
  // Called when the server listens again.
  void OnReturn(int server, const std::string& address, absl::Duration now);

  // Returns the deaths so far, in order.
  std::vector<Recovery> recoveries() const;

 private:
  // A server that listens and has not applied a push yet.
  struct Watched {
    size_t recovery = 0;  // index into recoveries_
    std::shared_ptr<ClusterClient> client;
  };
  void Run();

  const Connect connect_;
  const Clock& clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Recovery> recoveries_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Watched> watched_ ABSL_GUARDED_BY(mutex_);  // by server
  std::thread thread_;
};

}  // namespace torchps
