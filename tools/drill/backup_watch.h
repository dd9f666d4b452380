#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "tools/report/cluster_client.h"

namespace torchps {

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
  absl::optional<std::vector<uint64_t>> Look(absl::Duration patience);

  const bool has_log_;
  const Connect connect_;
  bool has_lost_ = false;                  // lost a disk, and copies are not complete since
  std::vector<std::string> addresses_;     // by server; empty if it does not listen
  std::unique_ptr<ClusterClient> client_;  // connected to the servers
  // The progress at the first call after the servers came back.
  absl::optional<std::vector<uint64_t>> before_;
};

}  // namespace torchps
