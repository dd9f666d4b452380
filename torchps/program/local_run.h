#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/clock.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/job.pb.h"
#include "torchps/server/server.h"

namespace torchps {

// Runs a job's servers inside this process, reached without a network. Used by `--local`, for
// example to debug a program, and by tests that run several workers as threads.
//
// The servers are complete, with threads and queues, but without sockets. Thread-safe. Channels
// must not be used after the cluster is destroyed.
class InProcessCluster {
 public:
  // `clock` must outlive the cluster. `dir`, `resume` and `model_dir` are passed to
  // Server::Options. If `dir` is empty, the servers do not store any files. Returns the errors of
  // Server::Start().
  static absl::StatusOr<std::unique_ptr<InProcessCluster>> Start(int servers, const Clock* clock,
                                                                 const std::string& dir = "",
                                                                 bool resume = false,
                                                                 const std::string& model_dir = "");

  // The servers' endpoints; the coordinator's is first.
  const std::vector<ServerEndpoint>& endpoints() const { return endpoints_; }

  Server& server(int index) { return *servers_[index]; }

 private:
  InProcessCluster() = default;

  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<ServerEndpoint> endpoints_;
};

// Asks the coordinator once for the job status. Returns nullopt if the call fails.
std::optional<JobStatus> AskForOutcome(const ServerEndpoint& coordinator);

// Returns the last line of a --local run, which does not write a report: "digits finished after 2
// epochs in 3.2 s: test loss 0.4018, accuracy 0.872".
std::string OutcomeText(const JobStatus& job);

// Returns RESOURCE_EXHAUSTED if the job ended but the model could not be saved.
absl::Status ModelKept(const JobStatus& job);

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

  // Writes the last checkpoint and stops the servers. `result` is the worker's result. Passes the
  // job's outcome and the model's path to `print`, and errors to `log`. If the job was resumed and
  // `result` is OK or CANCELLED, writes the job file. Returns `result`, or RESOURCE_EXHAUSTED if
  // the job ended but the model could not be saved. Call it at most once.
  absl::Status End(const absl::Status& result, const Say& print, const Say& log);

 private:
  LocalRun(std::string dir, std::unique_ptr<InProcessCluster> cluster, bool has_other_terms)
      : dir_(std::move(dir)), cluster_(std::move(cluster)), has_other_terms_(has_other_terms) {}

  std::string dir_;
  std::unique_ptr<InProcessCluster> cluster_;
  // True if the folder's job file is from before the job was resumed. The resumed job may differ.
  bool has_other_terms_;
};

}  // namespace torchps
