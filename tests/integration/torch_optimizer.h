#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace torchps {

// The optimizer of torch::optim that a normalised spec asks for, over `parameters`: what our own
// are measured against. Schedules and parameter groups are not carried over. Fails the test that
// calls it where the spec names no kind.
std::unique_ptr<torch::optim::Optimizer> TorchOptimizer(const OptimizerSpec& spec,
                                                        std::vector<torch::Tensor> parameters);

// One setting of an optimizer that equivalence is shown for.
struct OptimizerCase {
  std::string label;   // letters and digits
  OptimizerSpec spec;  // normalised
};

// Each optimizer, in each of its modes: plain and with everything that changes its formula.
std::vector<OptimizerCase> OptimizerCases();
// Those that a job without local steps may have.
std::vector<OptimizerCase> OptimizerCasesOfJobs();

// ||a - b|| / ||b||, Euclidean, summed in double.
double RelativeDifference(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace torchps
