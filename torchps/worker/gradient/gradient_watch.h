#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "torch/types.h"
#include "torchps/common/block_map.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/types.h"

namespace torchps {

// Reports each block of trained elements as soon as backward() added the last gradient to it, while
// backward() continues. Uses hooks on the nodes that accumulate gradients, as DDP's reducer does
// (Li et al. 2020, "PyTorch Distributed").
//
// After a step, returns the parameters that the step did not reach. torch.optim skips a parameter
// with an undefined gradient. The gradients here are always defined, because they are views of one
// flat vector.
//
// If one backward() adds a gradient twice (a backward() within a backward(), such as activation
// checkpointing), a block would be reported too early. Therefore no blocks are reported before the
// first Disarm(). If a gradient is added twice before that, later steps do not report blocks
// either.
//
// Thread-compatible. Hooks run on torch's threads; on the CPU, on the thread that calls backward().
// Several threads may call backward() concurrently.
class GradientWatch {
 public:
  // Called on a thread that runs hooks, at most once per block and Arm(). May be called
  // concurrently for different blocks.
  using OnReady = std::function<void(BlockId)>;

  // `parameters` are the parameters of the layout's trained segments, in order. Each gradient must
  // stay at the current address: a gradient at another address does not make a block ready.
  GradientWatch(const ModelLayout& layout, const BlockMap& map,
                const std::vector<torch::Tensor>& parameters);
  // An autograd graph may keep the hooks alive, but they report nothing from now on.
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  // Begins a step: marks all parameters as unreached. REQUIRES: disarmed; backward() is not
  // running.
  void BeginStep();
  // Returns true if backward() reached each parameter since BeginStep().
  bool ReachedAll() const;
  // Returns the elements of parameters that backward() did not reach since BeginStep(), armed or
  // not.
  ElementRuns Unreached() const;
  // Returns the elements of Unreached(), except parameters with a nonzero gradient: code other than
  // backward() wrote that gradient, and it must be pushed. `gradients` contains all trained
  // elements.
  ElementRuns Absent(absl::Span<const float> gradients) const;
  // Same as above for gradients in one vector on a device. Waits for the device. Throws torch's
  // exceptions.
  ElementRuns Absent(const torch::Tensor& gradients) const;

  // Reports blocks until Disarm(). Each block is reported when `passes` calls of backward() have
  // added to all parameters in it. REQUIRES: disarmed; backward() is not running; `passes` calls
  // will follow.
  void Arm(OnReady on_ready, int passes = 1);

  // Stops reporting blocks. FAILED_PRECONDITION names a parameter if its gradient was added to
  // after it was final, in a step that reports blocks. Blocks are not reported if a pass does not
  // reach one of their parameters. Returns OK if disarmed already.
  absl::Status Disarm();

 private:
  struct State;
  class Hook;

  ElementRuns UnreachedWhere(const std::function<bool(const ElementRun& elements)>& wanted) const;

  const std::shared_ptr<State> state_;
  // Keeps the accumulating nodes, and so the hooks, alive. Parameters hold these nodes weakly.
  std::vector<std::shared_ptr<void>> nodes_;
};

}  // namespace torchps
