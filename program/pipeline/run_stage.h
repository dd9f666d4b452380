#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/pipeline/member_task.h"
#include "worker/slot/worker_options.h"
#include "worker/task.h"

namespace torchps {

// A worker's process that holds the stage WorkerOptions::stage of a model and reaches those with
// the others at WorkerOptions::replica, from meeting them to the end of the job. Errors are those
// of MemberExchange::Listen and RunMember.
absl::Status RunStage(const MemberTask& task, WorkerOptions options);

// That stage of a task whose module is a torchps::Stages: what else the task holds of the model may
// go. INVALID_ARGUMENT: it is none, or has another number of stages than there are addresses.
absl::StatusOr<MemberTask> GetStage(const Task& task, const WorkerOptions& options);

}  // namespace torchps
