#pragma once

#include "proto/job.pb.h"

namespace torchps::simulation {

// The effect of a gradient on an element under torch.optim.SGD with a learning rate of 1 and
// without weight decay, written a second time, in double. Immutable.
class SgdModel {
 public:
  // An element.
  struct State {
    double value = 0;
    double momentum = 0;
  };

  // REQUIRES: the servers keep the momentum.
  explicit SgdModel(const SgdSpec& spec) : spec_(spec) {}

  // Applies a gradient to the element at `rate`.
  void Take(double gradient, double rate, State* element) const;

 private:
  const SgdSpec spec_;
};

}  // namespace torchps::simulation
