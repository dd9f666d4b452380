#pragma once

#include "torchps/proto/job.pb.h"

namespace torchps::simulation {

// Implements torch.optim.SGD a second time, in double, with a learning rate of 1 and without weight
// decay. Immutable.
class SgdModel {
 public:
  // State of one element.
  struct State {
    double value = 0;
    double momentum = 0;
  };

  // REQUIRES: the momentum is kept on the servers.
  explicit SgdModel(const SgdSpec& spec) : spec_(spec) {}

  // Applies a gradient to the element at `rate`.
  void Take(double gradient, double rate, State* element) const;

 private:
  const SgdSpec spec_;
};

}  // namespace torchps::simulation
