#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/worker_options.h"

namespace torchps {

// Connects to the servers that the flags name, or starts those of --local. To be called at most
// once, when the program has what it trains.
using Connect = std::function<absl::StatusOr<WorkerOptions>()>;

// What every worker program is around its training: reads the flags (--help lists them) and the
// job, seeds torch, runs `train` on a thread of its own, and returns the exit code
// (common/process/exit_codes.h). SIGINT and SIGTERM stop it, through WorkerOptions::stop. An error
// is one sentence on standard error.
//
// To be called first thing in main: it lets go of the two signals before any other thread exists.
int RunWorkerProgram(
    int argc, char** argv,
    const std::function<absl::Status(const JobSpec& job, const Connect& connect)>& train);

}  // namespace torchps
