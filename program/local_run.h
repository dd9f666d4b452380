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

// What --local trains with: the servers of the job, inside this process, and the folder that they
// keep the run in.
//
// Thread-compatible. Owns the servers: no channel to them may be used once End() was called or this
// is gone.
class LocalRun {
 public:
  using Say = std::function<void(const std::string& line)>;

  struct Options {
    int servers = 1;
    std::string dir;               // empty: a new one, runs/NAME-TIME
    bool resume = false;           // go on with the job in `dir`
    const Clock* clock = nullptr;  // outlives this
  };

  // Writes the job into the folder and starts the servers; of a job that goes on End() writes what
  // it has gone on as. INVALID_ARGUMENT: the folder holds a job that is not to be resumed;
  // RESOURCE_EXHAUSTED: it cannot be written; errors of MakeRunFolder() and
  // InProcessCluster::Start().
  static absl::StatusOr<LocalRun> Start(const JobSpec& job, Options options);

  // One per server, the coordinator's first. REQUIRES: it has not ended.
  const std::vector<ServerEndpoint>& endpoints() const { return cluster_->endpoints(); }

  // Takes the last checkpoint and ends the servers. `result` is the worker's; a worker that was
  // refused has not continued the job. `print` gets the job's outcome and the place of its model,
  // `log` what went wrong. Returns `result`, or RESOURCE_EXHAUSTED where the job has ended and its
  // model could not be kept. Call it once at most.
  absl::Status End(const absl::Status& result, const Say& print, const Say& log);

 private:
  LocalRun(std::string dir, std::unique_ptr<InProcessCluster> cluster, bool has_other_terms)
      : dir_(std::move(dir)), cluster_(std::move(cluster)), has_other_terms_(has_other_terms) {}

  std::string dir_;
  std::unique_ptr<InProcessCluster> cluster_;
  // The folder's job file may be of the job before it went on.
  bool has_other_terms_;
};

}  // namespace torchps
