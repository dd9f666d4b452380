#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "tools/report/cluster_client.h"

namespace torchps {

// Watches restarted servers until each has applied a push. Polls on a background thread.
// Thread-safe. Borrows the clock.
class RecoveryWatch {
 public:
  struct Recovery {
    int server = 0;
    absl::Duration died_at;                  // clock time
    absl::optional<absl::Duration> listens;  // time from died_at
    absl::optional<absl::Duration> applies;  // first push; time from died_at
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
