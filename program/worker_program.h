#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "program/inference.h"
#include "program/live_evaluator.h"
#include "proto/job.pb.h"
#include "worker/slot/worker_options.h"

namespace torchps {

// Connects to the servers that the flags name, or starts those of --local. To be called at most
// once, when the program has what it trains. CANCELLED: the process was told to stop.
using Connect = std::function<absl::StatusOr<WorkerOptions>()>;

// The program has the task that it was called for. CANCELLED: the process was told to stop.
using TaskIsMade = std::function<absl::Status()>;

// What a program does with a job. Until it connects, or says that its task is made, a stop ends the
// process in the midst of what it does.
struct WorkerProgram {
  std::function<absl::Status(const JobSpec& job, const Connect& connect)> train;
  // With --evaluate, --predict or --generate, and with --evaluate_every. Null: the program cannot.
  std::function<absl::Status(const JobSpec& job, const InferenceRequest& look,
                             const TaskIsMade& made)>
      look;
  std::function<absl::Status(const JobSpec& job, const LiveEvaluatorOptions& options,
                             const TaskIsMade& made)>
      watch;
};

// --stage: the stage of the model that this process is to hold; -1: all of it. To be asked once
// RunWorkerProgram() has read the flags.
int FlaggedStage();

// What every worker program is around that: reads the flags (--help lists them) and the job, seeds
// torch, runs the program on a thread of its own, and returns the exit code
// (common/process/exit_codes.h). SIGINT and SIGTERM stop it, through WorkerOptions::stop; while its
// task is made, by ending the process. An error is one sentence on standard error.
//
// To be called first thing in main: it lets go of the two signals before any other thread exists.
int RunWorkerProgram(int argc, char** argv, const WorkerProgram& program);

}  // namespace torchps
