#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/program/inference.h"
#include "torchps/program/live_evaluator.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/slot/worker_options.h"

namespace torchps {

// Connects to the servers in the flags, or starts the --local servers. Call it at most once, when
// the task exists. CANCELLED: the process was stopped.
using Connect = std::function<absl::StatusOr<WorkerOptions>()>;

// Called when the program has created the task. CANCELLED: the process was stopped.
using TaskIsMade = std::function<absl::Status()>;

// The functions that a program runs for a job. Until the program connects or reports the task as
// created, a stop ends the process immediately.
struct WorkerProgram {
  std::function<absl::Status(const JobSpec& job, const Connect& connect)> train;
  // `look` implements --evaluate, --predict and --generate; `watch` implements --evaluate_every.
  // Null if the program does not support them.
  std::function<absl::Status(const JobSpec& job, const InferenceRequest& look,
                             const TaskIsMade& made)>
      look;
  std::function<absl::Status(const JobSpec& job, const LiveEvaluatorOptions& options,
                             const TaskIsMade& made)>
      watch;
};

// Returns --stage: the model stage for this process; -1 means the whole model. Call it after
// RunWorkerProgram() has read the flags.
int FlaggedStage();

// Runs a worker program: reads the flags (see --help) and the job, seeds torch, runs `program` on a
// separate thread, and returns the exit code (torchps/common/process/command_line.h). SIGINT and
// SIGTERM stop the program through WorkerOptions::stop. While the task is being created, they end
// the process immediately. Prints an error as one sentence on standard error.
//
// Call this first in main: it blocks the two signals before other threads exist.
int RunWorkerProgram(int argc, char** argv, const WorkerProgram& program);

}  // namespace torchps
