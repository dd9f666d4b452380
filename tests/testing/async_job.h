#pragma once

#include "torchps/proto/job.pb.h"

namespace torchps {

// Returns `job` for tests that count single pushes. Sets mode ASYNC, in which each push is an
// update, and a full batch for each worker, unless `job` sets these fields. By default a server
// collects pushes until they add up to one batch of all workers.
inline JobSpec AsyncUnlessSaid(const JobSpec& job) {
  JobSpec result;
  result.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  result.mutable_training()->set_balance(TrainingSpec::EQUAL);
  result.mutable_training()->set_global_batch(false);
  result.MergeFrom(job);
  return result;
}

}  // namespace torchps
