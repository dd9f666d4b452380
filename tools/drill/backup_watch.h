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

// Knows when copies (durability.copies) are whole again after a server has lost its disk, so that
// another one may be lost: when all servers listen, and each has since then acknowledged a push or,
// without a log, completed a checkpoint. It does neither before its copies are where they belong.
//
// Not thread-safe.
class BackupWatch {
 public:
  using Connect = std::function<std::unique_ptr<ClusterClient>(std::vector<std::string>)>;

  // `has_log`: the job's level is LOG.
  BackupWatch(int servers, bool has_log, Connect connect);

  // A server dies; with its disk; listens again, or for the first time.
  void OnDeath(int server);
  void OnLoss(int server);
  void OnReturn(int server, const std::string& address);

  // Whether copies are whole, as far as servers say that within `patience` each. To be asked again
  // if not: what has got on since the last time is what counts.
  bool AreWhole(absl::Duration patience);

 private:
  // How far each server is; nothing: one of them does not say so.
  absl::optional<std::vector<uint64_t>> Look(absl::Duration patience);

  const bool has_log_;
  const Connect connect_;
  bool has_lost_ = false;                  // a disk, and copies were not whole since
  std::vector<std::string> addresses_;     // of servers; empty: it does not listen
  std::unique_ptr<ClusterClient> client_;  // of all of them
  // How far they were when all listened, first.
  absl::optional<std::vector<uint64_t>> before_;
};

}  // namespace torchps
