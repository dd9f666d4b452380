#pragma once

#include <string>

#include "proto/job.pb.h"

namespace torchps {

// Whether each worker keeps a momentum of its own and the servers none (optimizer.sgd.momentum_at).
// REQUIRES: `optimizer` is of a normalised job, as in all below.
bool MomentumInWorkers(const OptimizerSpec& optimizer);

// One sentence for who starts a job whose momentum is where staleness spoils it; empty for others.
std::string MomentumWarning(const JobSpec& job);

}  // namespace torchps
