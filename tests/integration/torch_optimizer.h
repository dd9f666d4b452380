#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "torchps/proto/job.pb.h"

namespace torchps {

// Returns the torch::optim optimizer for a normalized spec over `parameters`, as the reference for
// the product's optimizers. Ignores schedules and parameter groups. Fails the calling test if the
// spec does not name a kind.
std::unique_ptr<torch::optim::Optimizer> TorchOptimizer(const OptimizerSpec& spec,
                                                        std::vector<torch::Tensor> parameters);

// One optimizer setting of the equivalence tests.
struct OptimizerCase {
  std::string label;   // letters and digits
  OptimizerSpec spec;  // normalised
};

// Returns each optimizer in each mode: plain, and with each option that changes the formula.
std::vector<OptimizerCase> OptimizerCases();
// Returns the cases of OptimizerCases() that a job without local steps allows.
std::vector<OptimizerCase> OptimizerCasesOfJobs();

// Returns ||a - b|| / ||b||, Euclidean, summed in double.
double RelativeDifference(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace torchps
