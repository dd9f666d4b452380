#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_disk.h"
#include "tests/simulation/world.h"
#include "torchps/common/clock.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/server/job/job_directory.h"
#include "torchps/server/store/job_storage.h"

namespace torchps::simulation {

// Stores a server's job with the real JobDirectory, including the push log, on a simulated disk.
// The simulator replaces the directory's threads.
class SimStorage final : public JobStorage {
 public:
  // `peer` keeps the copies of the files; may be null.
  SimStorage(World* world, SimDisk* disk, std::shared_ptr<BackupPeer> peer, Fault fault);

  absl::StatusOr<std::optional<Origin>> Open(const JobShare& share, ParameterStore* store) override;
  BlockJournal* journal() override { return directory_.journal(); }
  void Describe(DurabilityStatus* status) override { directory_.Describe(status); }
  bool wants_checkpoint() const override { return directory_.wants_checkpoint(); }

  // Result of the last Open(), also if the server refused the Hello that led to it.
  const std::optional<Origin>& origin() const { return origin_; }

  // Writes the shard as long work (SimDisk::LongWork), during which other events happen.
  absl::StatusOr<ShardInfo> WriteShard(uint64_t checkpoint, std::function<void()> before_others);
  absl::Status Commit(const CommitCheckpointRequest& request) { return directory_.Commit(request); }
  // Writes and syncs one group of log records, as the log thread does. Returns false if there was
  // none.
  absl::StatusOr<bool> WriteLog() { return directory_.WriteLog(); }
  // Makes one step of copying to the peer. Returns false if everything is copied.
  absl::StatusOr<bool> CopyStep() { return directory_.CopyStep(); }

 private:
  SimDisk* const disk_;
  const Clock* const clock_;
  const Fault fault_;
  JobDirectory directory_;
  std::optional<Origin> origin_;
};

}  // namespace torchps::simulation
