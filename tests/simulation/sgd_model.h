#pragma once

#include <cstdint>

#include "proto/job.pb.h"

namespace torchps::simulation {

// What a gradient does to an element under SGD with a learning rate of 1 and without decay, by each
// rule for a momentum that the servers keep: written a second time, in double, as its paper has it.
// Immutable.
class SgdModel {
 public:
  // An element.
  struct State {
    double value = 0;
    double momentum = 0;
    double gathered = 0;  // DELAYED: since the momentum moved
    int64_t taken = 0;    // gradients
  };

  // `spec` is of a normalised job of so many `workers`, and its momentum is not in these.
  SgdModel(const SgdSpec& spec, int workers) : spec_(spec), workers_(workers) {}

  // The element takes a gradient, at `rate`, that was computed so many versions ago.
  void Take(double gradient, double rate, int64_t lag, State* element) const;

 private:
  void TakeOrdered(double gradient, double rate, int64_t lag, State* element) const;
  void TakeDelayed(double gradient, double rate, State* element) const;
  // As many whole rounds of all workers as so many gradients take.
  int64_t Turn(int64_t gradients) const { return (gradients + workers_ - 1) / workers_; }

  const SgdSpec spec_;
  const int64_t workers_;
};

}  // namespace torchps::simulation
