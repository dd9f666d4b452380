#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/worker/learner.h"
#include "torchps/worker/slot/worker_options.h"
#include "torchps/worker/slot/worker_slot.h"
#include "torchps/worker/task.h"

namespace torchps {

// Makes the function that computes the gradients of the slot's steps. The function leaves the
// gradients in slot->model(), which was made from task.module(). `options` are for a Learner that
// computes whole steps.
using MakeCompute = std::function<absl::StatusOr<ComputeGradient>(
    const Task& task, const Learner::Options& options, WorkerSlot* slot)>;

// Runs one worker. Joins a job with the module's layout and lays the module out on the slot's
// device or on the `stage_devices`. Trains until the job is done or `options.stop` is stopped, then
// leaves the job. The calling thread does the torch work, except for stages before the last and
// threads that `make_compute` adds. Another thread renews the leases. If `make_compute` is null, a
// Learner computes.
//
// After joining, seeds torch's process-wide generator from job.seed and the slot. If a program runs
// several workers, it must create all tasks before the first worker joins.
//
// Returns OK if the job is done. Errors are those of WorkerSlot, StepLoop and Learner, each one
// sentence.
absl::Status RunWorker(const Task& task, WorkerOptions options,
                       const MakeCompute& make_compute = nullptr);

}  // namespace torchps
