#pragma once

#include "absl/status/status.h"
#include "worker/task.h"
#include "worker/worker_options.h"

namespace torchps {

// One worker from joining a job to leaving it: joins with the module's layout, lays it out on the
// device of its slot, trains until the job is done or `stop` is stopped, and leaves in either case.
// All torch work is done by the calling thread; one more thread renews the leases.
//
// OK: the job is done. Errors as in WorkerSlot, StepLoop and Learner, each one sentence.
absl::Status RunWorker(const Task& task, WorkerOptions options);

}  // namespace torchps
