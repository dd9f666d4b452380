#pragma once

#include <functional>

#include "common/ids.h"

namespace torchps {

// Carries a step's gradient from the device to the push and reports blocks while the step is
// computed.
//
//    BeginStep() BlockFinal()... Open() BlockFinal()... <the end of the step> BeginStep() ...
//
// Only one thread may call these functions, except BlockFinal(), which any thread may call.
class Outbox {
 public:
  // Called from any thread, once for each block. It must not block: it may only post work.
  using Tell = std::function<void(BlockId block)>;

  virtual ~Outbox() = default;

  // Begins a step before the device computes the gradients. REQUIRES: the push of the step before
  // the previous step ended, and the previous step was finished or dropped.
  virtual void BeginStep() = 0;
  // Reports that the calling thread queued all device work for the gradient of `block`. Trained
  // blocks only, at most once a step. Ignored outside a step, because a failed backward() may
  // return on one autograd thread while another thread still runs a hook.
  virtual void BlockFinal(BlockId block) = 0;
  // Reports that the step's push began after the previous push ended. Blocks are reported from now
  // on.
  virtual void Open(Tell tell) = 0;
  // Abandons the step. Waits for pending copies; `tell` is not called afterwards. Does nothing
  // after the step is finished.
  virtual void Drop() = 0;
};

}  // namespace torchps
