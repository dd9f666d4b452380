#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/calls/server_channel.h"
#include "common/clock.h"
#include "common/stop_latch.h"
#include "proto/coordinator.pb.h"
#include "torch/types.h"
#include "worker/evaluation.h"
#include "worker/task.h"

// What `--evaluate_every` asks of a program: it takes part in no job, trains nothing and holds no
// slot. It reads a running job's values again and again, and measures them.

namespace torchps {

// What a job's values were worth at one moment.
struct Measured {
  // Of the moment at which the values had arrived, however long measuring them took.
  double seconds = 0;   // since the job started
  int64_t samples = 0;  // that finished leases have used by then
  int64_t pushes = 0;   // that the same leases made
  Evaluation evaluation;
};

// One object: "seconds", "samples_used", "pushes", "samples" (of the test set), "loss", "metrics",
// and the names in "lower_is_better".
std::string MeasuredJson(const Measured& measured);
// One line for people.
std::string MeasuredText(const Measured& measured);

// What the two functions below need to know.
struct LiveEvaluatorOptions {
  // As WorkerOptions has them.
  std::vector<ServerEndpoint> servers;
  torch::Device device = torch::kCPU;
  absl::Duration patience = absl::Seconds(60);
  std::function<void(const std::string& line)> log = [](const std::string&) {};
  const Clock* clock = nullptr;
  StopLatch* stop = nullptr;

  // From one measurement's beginning to the next one's. What takes longer leaves moments out.
  absl::Duration every = absl::Seconds(5);
  // The training samples instead of the test set.
  bool on_training_data = false;
  // An error ends the watch with it.
  std::function<absl::Status(const Measured& measured)> on_measured;
};

// Waits until a job has started on the servers; tells of it.
// UNAVAILABLE: server 0 has not answered for `patience`. CANCELLED: stopped.
absl::StatusOr<JobStatus> AwaitRunningJob(const LiveEvaluatorOptions& options);

// The job that is on the servers, running or waiting for workers, as they have completed it.
// FAILED_PRECONDITION: they have none. UNAVAILABLE, CANCELLED as above.
absl::StatusOr<JobSpec> JobOfServers(const LiveEvaluatorOptions& options);

// Measures the values of the job that is running: now, `every` so often, and once more when it has
// ended. `job` is the coordinator's copy, and `task` what its workers train. Values that cannot be
// had just now, from a server that comes back, are left out with a line to `log`.
// UNAVAILABLE, CANCELLED as above. FAILED_PRECONDITION: there are no samples to measure on.
// INVALID_ARGUMENT: the servers have another model. Others are the user's code's.
absl::Status WatchJob(const Task& task, const JobSpec& job, const LiveEvaluatorOptions& options);

}  // namespace torchps
