#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "torchps/data/dataset.h"

// Helpers for mnist_single_process.cc. They read samples and compute a module's accuracy, which
// libtorch does not provide.

namespace examples {

// Reads MNIST's IDX files in the directory `argv[1]`. Without an argument, generates 6,000 training
// digits and 1,000 test digits. Exits with 1 if the files cannot be read.
torchps::DataSource OpenDigits(int argc, char** argv);

// Returns the batches of `epochs` passes over `dataset`, in a new order for each pass.
std::vector<torchps::Batch> Batches(const torchps::Dataset& dataset, int64_t batch_size,
                                    int epochs);

// Returns the accuracy of `module` on `dataset`, 0 to 1.
template <typename Module>
double Accuracy(Module& module, const torchps::Dataset& dataset) {
  const torch::NoGradGuard no_grad;
  module.eval();
  int64_t right = 0;
  for (const torchps::Batch& batch : Batches(dataset, /*batch_size=*/250, /*epochs=*/1)) {
    right += module.forward(batch.input).argmax(1).eq(batch.target).sum().template item<int64_t>();
  }
  module.train();
  return static_cast<double>(right) / static_cast<double>(dataset.size());
}

}  // namespace examples
