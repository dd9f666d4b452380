#pragma once

#include <cstdint>

#include "torchps/proto/job.pb.h"

namespace torchps {

// Numbers of steps and samples per push, for jobs with and without local steps. REQUIRES: `job` is
// normalised and completed (torchps/job/job_spec.h).

// Returns true if workers train locally and push the difference (LocalSpec). Accepts any job.
bool HasLocalSteps(const JobSpec& job);

// Returns true if a worker requests a lease for each push instead of for several. `job` need not be
// completed.
bool LeasesArePushes(const JobSpec& job);

// Returns the steps between two pushes of a slot: local.steps, or 1 without local steps.
int64_t StepsOfPush(const JobSpec& job);

// Returns the number of forward and backward passes per push: training.accumulate for each step.
int64_t PassesOfPush(const JobSpec& job);

// Returns the samples per pass of one slot if all slots are equally fast: batch_size, divided by
// `workers` and rounded up if training.global_batch is set.
int64_t EqualBatch(const JobSpec& job);

// Returns batch_size times the passes per push, the number of samples for which the learning rate
// is set. If training.global_batch is set, all slots share them. Otherwise each slot pushes this
// many.
int64_t SamplesOfPush(const JobSpec& job);

// Returns the maximum samples of one push of one slot: the whole batch if training.global_batch is
// set; otherwise the equal shares of all workers, or four. The coordinator usually gives a slot at
// most two (torchps/server/coordinator/batch_balancer.h), and more while slots return from an
// evaluation. One more sample per pass comes from rounding.
int64_t MostSamplesOfPush(const JobSpec& job);

// Returns the samples in the pushes of all `workers` together.
int64_t SamplesOfAllPushes(const JobSpec& job);

}  // namespace torchps
