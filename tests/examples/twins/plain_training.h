#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>

#include "data/dataset.h"
#include "proto/job.pb.h"

// What the examples' twins share: programs that train an example's module by torch::optim alone.

namespace torchps {

// The job of an example that is run with --set seed=N, for those parts that the data depend on.
// The seed is the program's first argument; torch is seeded by it.
JobSpec TwinJob(int argc, char** argv);

// Calls `step` with batches of 32 indices, each pass over `samples` in an order of its own.
void ForEachBatch(int64_t samples, int epochs,
                  const std::function<void(const torch::Tensor& indices)>& step);

// The samples at `indices`. Ends the process where the dataset has an error.
Batch BatchAt(const Dataset& dataset, const torch::Tensor& indices);

// The whole dataset as one batch.
Batch AllOf(const Dataset& dataset);

// The line that twins_test.py reads.
void PrintLoss(double loss);

}  // namespace torchps
