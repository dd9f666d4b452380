#pragma once

#include "proto/job.pb.h"

namespace torchps {

// `job`, and where it says nothing else ASYNC with a whole batch for each worker, for tests that
// count single pushes. By default a job collects whole batches, and its workers share a batch.
inline JobSpec AsyncUnlessSaid(const JobSpec& job) {
  JobSpec result;
  result.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  result.mutable_training()->set_balance(TrainingSpec::EQUAL);
  result.mutable_training()->set_global_batch(false);
  result.MergeFrom(job);
  return result;
}

}  // namespace torchps
