#pragma once

#include "proto/job.pb.h"

namespace torchps {

// Returns `job` with defaults for tests that count single pushes: ASYNC with a whole batch per
// worker, unless `job` sets these fields. The usual defaults collect whole batches, and workers
// share a batch.
inline JobSpec AsyncUnlessSaid(const JobSpec& job) {
  JobSpec result;
  result.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  result.mutable_training()->set_balance(TrainingSpec::EQUAL);
  result.mutable_training()->set_global_batch(false);
  result.MergeFrom(job);
  return result;
}

}  // namespace torchps
