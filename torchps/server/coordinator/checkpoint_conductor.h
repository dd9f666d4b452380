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
#include "grpcpp/channel.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/server/coordinator/job_coordinator.h"
#include "torchps/server/rpc/poller.h"

namespace torchps {

// Takes the checkpoints that a JobCoordinator plans. Checks that all servers are reachable, and
// requests a shard from each server in parallel. Once all shards are on disk, writes the manifest
// and reads it back. Finally reports the complete checkpoint to every server, so that the servers
// may remove older ones. Runs on a separate thread while training continues.
//
// Thread-safe. Calls `done` on the conductor's thread.
class CheckpointConductor {
 public:
  // Returns a channel to server `index`. `address` is the one that the workers or the server itself
  // reported; empty if it is unknown.
  using Connect = std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(
      int index, const std::string& address)>;
  using Done = std::function<void(uint64_t number, const absl::StatusOr<CheckpointStatus>&)>;

  struct Options {
    // Server 0's directory. The conductor writes the manifest there first, and then sends it to the
    // servers.
    std::shared_ptr<const CheckpointDirectory> directory;
    Connect connect;
    Done done;
    // Timeout for a server's status reply.
    absl::Duration look_timeout = absl::Seconds(10);
    // Timeout for writing a shard. The conductor adds the time that the bytes of the shard need.
    absl::Duration shard_timeout = absl::Minutes(10);
    // Timeout for storing the manifest on a server.
    absl::Duration commit_timeout = absl::Seconds(60);
    // Time during which the commit to an unavailable server is retried, and the pause between
    // attempts.
    absl::Duration commit_patience = absl::Seconds(20);
    absl::Duration commit_pause = absl::Milliseconds(500);
    // Must outlive this.
    const Clock* clock = nullptr;
  };

  explicit CheckpointConductor(Options options);
  ~CheckpointConductor() { Stop(); }

  // Begins `plan`; `done` receives the outcome. REQUIRES: the previous plan has ended.
  void Start(JobCoordinator::CheckpointPlan plan);

  // Cancels the running checkpoint with CANCELLED and stops the thread. Idempotent.
  void Stop();

 private:
  void Run();
  // Same as ServerCalls::Ask() for the servers of the plan. Errors name the server.
  template <typename Reply, typename Begin>
  std::vector<absl::StatusOr<Reply>> Ask(const std::vector<int>& asked, absl::Duration timeout,
                                         const Begin& begin);
  absl::StatusOr<CheckpointStatus> Take(const JobCoordinator::CheckpointPlan& plan);
  absl::Status ConnectAll(const JobCoordinator::CheckpointPlan& plan);
  // Checks that every server is reachable and ready, so that no server writes a shard in vain.
  // Returns the largest size of a server's values and optimizer state in bytes, which is about the
  // size of the shard.
  absl::StatusOr<uint64_t> LookAtServers(const JobCoordinator::CheckpointPlan& plan);
  absl::StatusOr<Manifest> WriteShards(const JobCoordinator::CheckpointPlan& plan,
                                       absl::Duration timeout);
  // Sends the manifest to all servers. `everywhere` in the request means that all servers already
  // store it, so they may now remove older checkpoints.
  absl::Status Commit(const CommitCheckpointRequest& request);
  // Returns "server 1 at HOST:PORT".
  std::string GetName(int index) const;
  std::vector<int> AllServers() const;

  const Options options_;
  // Used only by thread_: the servers of the current plan.
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
