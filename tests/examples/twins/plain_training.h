#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>

#include "torchps/data/dataset.h"
#include "torchps/proto/job.pb.h"

// Helpers for the twins of the examples: programs that train an example's module with torch::optim.

namespace torchps {

// Returns a job with the seed that the example gets from --set seed=N. The program's first argument
// is N. Also seeds torch.
JobSpec TwinJob(int argc, char** argv);

// Calls `step` with batches of 32 indices, in a new random order for each pass over `samples`.
void ForEachBatch(int64_t samples, int epochs,
                  const std::function<void(const torch::Tensor& indices)>& step);

// Returns the samples at `indices`. Ends the process if the dataset reports an error.
Batch BatchAt(const Dataset& dataset, const torch::Tensor& indices);

// Returns the whole dataset as one batch.
Batch AllOf(const Dataset& dataset);

// Prints `loss` in the line that twins_test.py reads.
void PrintLoss(double loss);

}  // namespace torchps
