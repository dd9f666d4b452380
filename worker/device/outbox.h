#pragma once

#include <functional>

#include "common/ids.h"

namespace torchps {

// A step's way from the device to its push: what is told of blocks while the step is computed.
//
//   BeginStep() BlockFinal()... Open() BlockFinal()... <the end of the step> BeginStep() ...
//
// One thread makes all calls but BlockFinal(), which any may.
class Outbox {
 public:
  // From any thread, once a block; it may only post.
  using Tell = std::function<void(BlockId block)>;

  virtual ~Outbox() = default;

  // A step's gradients are about to be computed. REQUIRES: the push of the step before the last one
  // has ended; the last step was finished or dropped.
  virtual void BeginStep() = 0;
  // The calling thread has given the device all that computes the gradient of `block`. Trained
  // blocks only, each at most once a step. Does nothing outside of a step: a backward() that fails
  // on one thread of autograd's returns while another one still runs a hook.
  virtual void BlockFinal(BlockId block) = 0;
  // The step's push has begun, and the one before has ended: blocks are told from now on.
  virtual void Open(Tell tell) = 0;
  // The step comes to nothing. Waits for the copies under way; nothing is told after that. Does
  // nothing once the step is finished.
  virtual void Drop() = 0;
};

}  // namespace torchps
