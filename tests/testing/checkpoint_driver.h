#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "torchps/common/model_layout.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/parameter_service.grpc.pb.h"

namespace torchps {

// Takes checkpoints in place of a coordinator, for tests that simulate the workers themselves. Not
// thread-safe.
class CheckpointDriver {
 public:
  struct Options {
    JobSpec job;  // normalized
    ModelLayout layout;
    uint64_t job_id = 0;
    // Addresses of the servers, in order.
    std::vector<std::string> addresses;
    // Number of checkpoints to keep.
    int keep = 2;
  };
  explicit CheckpointDriver(Options options);

  // Waits until all servers are reachable. Returns false after `timeout`. A channel reconnects only
  // while a caller waits for it, so call this after a server's restart.
  bool AwaitConnected(absl::Duration timeout);

  // Requests a shard from each server and commits the checkpoint on all of them. Stops at the first
  // error without undoing earlier calls.
  absl::Status Take();

  uint64_t taken() const { return taken_; }
  // The manifest of the last checkpoint.
  const Manifest& manifest() const { return manifest_; }

 private:
  const Options options_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<ParameterService::Stub>> stubs_;
  uint64_t last_ = 0;
  uint64_t taken_ = 0;
  std::vector<uint64_t> kept_;
  Manifest manifest_;
};

}  // namespace torchps
