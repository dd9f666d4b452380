#pragma once

#include <cstdint>

#include "proto/job.pb.h"

namespace torchps {

// How many steps and samples the pushes of a job are made of, with local steps and without. Free
// functions without state. REQUIRES of all: `job` is normalised and completed (job/job_spec.h).

// Whether workers take steps by themselves and push the difference (LocalSpec). Of any job.
bool HasLocalSteps(const JobSpec& job);

// Whether a worker takes a lease for each push, and not for several. `job` need not be completed.
bool LeasesArePushes(const JobSpec& job);

// Steps from one push of a slot to its next: local.steps, 1 without local steps.
int64_t StepsOfPush(const JobSpec& job);

// Forward and backward passes behind a push: training.accumulate for each of its steps.
int64_t PassesOfPush(const JobSpec& job);

// Samples of a pass of one slot, were all equally fast: batch_size, with training.global_batch its
// `workers`-th part, rounded up.
int64_t EqualBatch(const JobSpec& job);

// Samples of a push of one slot that counts as a whole one: of the batch_size that the learning
// rate is meant for.
int64_t SamplesOfPush(const JobSpec& job);

// Samples of a push of all `workers` together.
int64_t SamplesOfAllPushes(const JobSpec& job);

}  // namespace torchps
