#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/worker/pipeline/stage_work.h"
#include "torchps/worker/slot/worker_options.h"
#include "torchps/worker/task.h"

namespace torchps {

// Runs a worker process for one stage of a model (WorkerOptions::stage), from meeting the other
// processes at WorkerOptions::replica until the job ends. Returns the errors of
// MemberExchange::Listen and RunMember.
absl::Status RunStage(const MemberTask& task, WorkerOptions options);

// Returns this process's stage of a task with a torchps::Stages module. The caller may then free
// the rest of the model. INVALID_ARGUMENT: the module is not a torchps::Stages, or the number of
// stages differs from the number of addresses.
absl::StatusOr<MemberTask> GetStage(const Task& task, const WorkerOptions& options);

}  // namespace torchps
