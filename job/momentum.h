#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "job/update_rule.h"
#include "proto/job.pb.h"

namespace torchps {

// Whether each worker keeps a momentum of its own and the servers none (optimizer.sgd.momentum_at).
// REQUIRES: `optimizer` is of a normalised job, as in all below.
inline bool MomentumInWorkers(const OptimizerSpec& optimizer) {
  return optimizer.sgd().momentum_at() == SgdSpec::WORKER;
}

// Returns one sentence for the user who starts a job whose momentum suffers from staleness; empty
// for other jobs.
inline std::string MomentumWarning(const JobSpec& job) {
  const SgdSpec& sgd = job.optimizer().sgd();
  if (sgd.momentum() <= 0 || sgd.momentum_at() != SgdSpec::SERVER || job.workers() < 2 ||
      !AppliesEachPush(job.consistency())) {
    return "";
  }
  // 0.35 and 1.6 in units of 1 / curvature, at 3 workers that prefetch and a momentum of 0.9.
  return absl::StrCat("optimizer.sgd.momentum_at is SERVER in ASYNC with apply EACH_PUSH and ",
                      job.workers(),
                      " workers: late gradients make the largest stable learning rate about 4.6 "
                      "times lower than WORKER's, and lower than without momentum; leave "
                      "momentum_at out, with a dampening of 0 (docs/protocol.md, \"Momentum\")");
}

}  // namespace torchps
