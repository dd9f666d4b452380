#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/calls/server_channel.h"
#include "common/clock.h"
#include "program/in_process_cluster.h"
#include "proto/job.pb.h"

namespace torchps {

// Runs the servers of a --local job inside this process, and manages the folder of the run.
//
// Thread-compatible. Owns the servers: channels to them must not be used after End() or after the
// destructor.
class LocalRun {
 public:
  using Say = std::function<void(const std::string& line)>;

  struct Options {
    int servers = 1;
    std::string dir;               // empty: a new folder runs/NAME-TIME
    bool resume = false;           // resume the job in `dir`
    const Clock* clock = nullptr;  // outlives this object
  };

  // Writes the job file into the folder and starts the servers. For a resumed job, End() writes the
  // job file. INVALID_ARGUMENT: the folder contains a job, and `resume` is false.
  // RESOURCE_EXHAUSTED: the folder cannot be written. Also returns the errors of MakeRunFolder()
  // and InProcessCluster::Start().
  static absl::StatusOr<LocalRun> Start(const JobSpec& job, Options options);

  // The servers' endpoints; the coordinator's is first. REQUIRES: End() was not called.
  const std::vector<ServerEndpoint>& endpoints() const { return cluster_->endpoints(); }

  // Writes the last checkpoint and stops the servers. `result` is the worker's result; a worker
  // that was refused did not continue the job. Passes the job's outcome and the model's path to
  // `print`, and errors to `log`. Returns `result`, or RESOURCE_EXHAUSTED if the job ended but the
  // model could not be saved. May be called once.
  absl::Status End(const absl::Status& result, const Say& print, const Say& log);

 private:
  LocalRun(std::string dir, std::unique_ptr<InProcessCluster> cluster, bool has_other_terms)
      : dir_(std::move(dir)), cluster_(std::move(cluster)), has_other_terms_(has_other_terms) {}

  std::string dir_;
  std::unique_ptr<InProcessCluster> cluster_;
  // True if the folder's job file may describe the job before it was resumed.
  bool has_other_terms_;
};

}  // namespace torchps
