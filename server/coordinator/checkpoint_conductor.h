#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint/checkpoint_directory.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "grpcpp/channel.h"
#include "proto/parameter_service.grpc.pb.h"
#include "server/coordinator/job_coordinator.h"
#include "server/rpc/server_calls.h"

namespace torchps {

// Takes the checkpoints that a JobCoordinator plans: looks whether all servers are there, lets
// every one write its shard, all at the same time, writes the manifest when all are on the disk,
// reads it back, and tells every server that the checkpoint is complete, so that it may remove
// older ones. Each on a thread of its own, while training goes on.
//
// Thread-safe. `done` is called on the conductor's thread.
class CheckpointConductor {
 public:
  // How to reach server `index`, whose address is what the workers say.
  using Connect = std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(
      int index, const std::string& address)>;
  using Done = std::function<void(uint64_t number, const absl::StatusOr<CheckpointStatus>&)>;

  struct Options {
    // Server 0's, where the manifest goes first.
    std::shared_ptr<const CheckpointDirectory> directory;
    Connect connect;
    Done done;
    // For a server to say that it is there.
    absl::Duration look_timeout = absl::Seconds(10);
    // For the shard of one server, beside the time for its bytes; and for what follows the
    // manifest.
    absl::Duration shard_timeout = absl::Minutes(10);
    absl::Duration commit_timeout = absl::Seconds(60);
    // How long a server that is away is asked again to complete a checkpoint.
    absl::Duration commit_patience = absl::Seconds(20);
    absl::Duration commit_pause = absl::Milliseconds(500);
    // Outlives this.
    const Clock* clock = nullptr;
  };

  explicit CheckpointConductor(Options options);
  ~CheckpointConductor() { Stop(); }

  // Begins `plan`; `done` tells what became of it. REQUIRES: none is under way.
  void Start(JobCoordinator::CheckpointPlan plan);

  // Breaks off what is under way, with CANCELLED, and ends the thread. Idempotent.
  void Stop();

 private:
  void Run();
  // As ServerCalls::Ask(), of the plan's servers; an error says which one it is of.
  template <typename Reply, typename Begin>
  std::vector<absl::StatusOr<Reply>> Ask(const std::vector<int>& asked, absl::Duration timeout,
                                         const Begin& begin);
  absl::StatusOr<CheckpointStatus> Take(const JobCoordinator::CheckpointPlan& plan);
  absl::Status ConnectAll(const JobCoordinator::CheckpointPlan& plan);
  // OK: every server is there and can write. So one that is away costs no other a shard. Returns
  // what the largest share of the model takes.
  absl::StatusOr<uint64_t> LookAtServers(const JobCoordinator::CheckpointPlan& plan);
  absl::StatusOr<Manifest> WriteShards(const JobCoordinator::CheckpointPlan& plan,
                                       absl::Duration timeout);
  // Lets all servers keep the manifest or, `everywhere`, once they do, remove what it makes
  // superfluous.
  absl::Status Commit(const CommitCheckpointRequest& request);
  // "server 1 at HOST:PORT".
  std::string GetName(int index) const;
  std::vector<int> AllServers() const;

  const Options options_;
  // Of the plan under way; the conductor's thread's.
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<ParameterService::Stub>> stubs_;

  ServerCalls calls_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<JobCoordinator::CheckpointPlan> next_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace torchps
