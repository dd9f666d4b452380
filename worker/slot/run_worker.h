#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/learner.h"
#include "worker/slot/worker_options.h"
#include "worker/slot/worker_slot.h"
#include "worker/task.h"

namespace torchps {

// Makes what computes the gradients of the slot's steps, and leaves them in slot->model(), which is
// made of task.module(). `options` are those of a Learner that computes whole steps.
using MakeCompute = std::function<absl::StatusOr<ComputeGradient>(
    const Task& task, const Learner::Options& options, WorkerSlot* slot)>;

// One worker from joining a job to leaving it: joins with the module's layout, lays it out on the
// device of its slot, or its stages on those of `stage_devices`, trains until the job is done or
// `stop` is stopped, and leaves in either case. All torch work is done by the calling thread, that
// of all stages but the last by threads of their own, and by those that `make_compute` brings; one
// more thread renews the leases. Without `make_compute` a Learner computes.
//
// Once it has joined it seeds torch's generator, which is one for all threads of the process, from
// job.seed and the slot. A program that runs several workers makes the tasks of all before the
// first one joins.
//
// OK: the job is done. Errors as in WorkerSlot, StepLoop and Learner, each one sentence.
absl::Status RunWorker(const Task& task, WorkerOptions options,
                       const MakeCompute& make_compute = nullptr);

}  // namespace torchps
