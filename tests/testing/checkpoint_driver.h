#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/model_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/parameter_service.grpc.pb.h"

namespace torchps {

// Takes checkpoints of a job whose workers are a test's own, in place of a coordinator. Not
// thread-safe.
class CheckpointDriver {
 public:
  struct Options {
    JobSpec job;  // normalised
    ModelLayout layout;
    uint64_t job_id = 0;
    // Of the servers, in their order.
    std::vector<std::string> addresses;
    // Checkpoints that stay.
    int keep = 2;
  };
  explicit CheckpointDriver(Options options);

  // Whether all servers can be reached, at the latest after `timeout`: after a server's death it
  // takes its time, and goes on only while somebody waits for it.
  bool AwaitConnected(absl::Duration timeout);

  // Asks every server for its shard, and tells all that the checkpoint is complete. What is done by
  // the first error stays as it is.
  absl::Status Take();

  uint64_t taken() const { return taken_; }
  // Of the last one that was taken.
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
