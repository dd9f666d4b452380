#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torch/types.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/worker/evaluation.h"
#include "torchps/worker/task.h"

// Implements `--evaluate_every`. The program does not join the job, train or use a slot. It reads a
// running job's values repeatedly and evaluates them.

namespace torchps {

// The evaluation of a job's values at one moment.
struct Measured {
  // The next three numbers are from the time when the values arrived, not when the evaluation
  // ended.
  double seconds = 0;   // since the job started
  int64_t samples = 0;  // in sample leases that were finished by then
  int64_t pushes = 0;   // for these leases
  Evaluation evaluation;
};

// Returns one JSON object: "seconds", "samples_used", "pushes", "samples" (in the test set),
// "loss", "metrics", and the names in "lower_is_better".
std::string MeasuredJson(const Measured& measured);
// Returns one readable line.
std::string MeasuredText(const Measured& measured);

// Options of the functions below.
struct LiveEvaluatorOptions {
  // As in WorkerOptions.
  std::vector<ServerEndpoint> servers;
  torch::Device device = torch::kCPU;
  absl::Duration patience = absl::Seconds(60);
  std::function<void(const std::string& line)> log = [](const std::string&) {};
  const Clock* clock = nullptr;
  StopLatch* stop = nullptr;

  // The period between the starts of two measurements. If a measurement takes longer than this, the
  // measurements that are due before its end are skipped.
  absl::Duration every = absl::Seconds(5);
  // Use the training samples instead of the test set.
  bool on_training_data = false;
  // Called for each measurement. An error ends the measurements, and WatchJob returns it.
  std::function<absl::Status(const Measured& measured)> on_measured;
};

// Blocks until a job has started on the servers, and returns the job status. UNAVAILABLE: server 0
// did not answer for `patience`. CANCELLED: stopped.
absl::StatusOr<JobStatus> AwaitRunningJob(const LiveEvaluatorOptions& options);

// Returns the servers' job, running or waiting for workers, as the coordinator completed it.
// FAILED_PRECONDITION: the servers do not have a job. UNAVAILABLE and CANCELLED: see
// AwaitRunningJob().
absl::StatusOr<JobSpec> JobOfServers(const LiveEvaluatorOptions& options);

// Measures the values of the running job: now, then in intervals of `every`, and again after the
// job ended. `job` is the coordinator's copy, and `task` is the workers' task. If a server is
// restarting, skips the measurement and logs a line. UNAVAILABLE and CANCELLED: see
// AwaitRunningJob(). FAILED_PRECONDITION: there are no samples to measure. INVALID_ARGUMENT: the
// servers hold another model. Also returns the errors of the user's code.
absl::Status WatchJob(const Task& task, const JobSpec& job, const LiveEvaluatorOptions& options);

}  // namespace torchps
