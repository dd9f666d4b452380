#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

// What mnist_single_process.cc needs beside libtorch: samples, and how well a module does on them.

namespace examples {

// IDX files in the directory that `argv[1]` names (MNIST), or without it 6,000 digits to train on
// and 1,000 to test on that the program draws itself. Ends the process if they cannot be read.
torchps::DataSource OpenDigits(int argc, char** argv);

// The batches of `epochs` passes over `dataset`, each pass in an order of its own.
std::vector<torchps::Batch> Batches(const torchps::Dataset& dataset, int64_t batch_size,
                                    int epochs);

// Part of `dataset` that `module` puts into the right class.
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
