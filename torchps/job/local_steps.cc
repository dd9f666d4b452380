#include "torchps/job/local_steps.h"

#include <algorithm>

#include "torchps/job/consistency_fields.h"

namespace torchps {

bool HasLocalSteps(const JobSpec& job) { return job.has_local(); }

bool LeasesArePushes(const JobSpec& job) {
  return HasLocalSteps(job) || CollectsPushes(job.consistency());
}

int64_t StepsOfPush(const JobSpec& job) { return HasLocalSteps(job) ? job.local().steps() : 1; }

int64_t PassesOfPush(const JobSpec& job) { return StepsOfPush(job) * job.training().accumulate(); }

int64_t EqualBatch(const JobSpec& job) {
  const int64_t batch = job.training().batch_size();
  if (!job.training().global_batch()) return batch;
  return (batch + job.workers() - 1) / job.workers();
}

int64_t SamplesOfPush(const JobSpec& job) {
  return job.training().batch_size() * PassesOfPush(job);
}

int64_t MostSamplesOfPush(const JobSpec& job) {
  const int64_t shares = job.training().global_batch() ? 1 : std::max(4, job.workers());
  return SamplesOfPush(job) * shares + PassesOfPush(job);
}

int64_t SamplesOfAllPushes(const JobSpec& job) {
  return SamplesOfPush(job) * (job.training().global_batch() ? 1 : job.workers());
}

}  // namespace torchps
