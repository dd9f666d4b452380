#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/element_runs.h"
#include "common/ids.h"
#include "common/model_layout.h"
#include "torch/types.h"

namespace torchps {

// Tells of each block of trained elements when backward() has added the last gradient to it, while
// backward() goes on with the others: hooks on the nodes that accumulate gradients, as DDP's
// reducer has them (Li et al. 2020, "PyTorch Distributed").
//
// And tells afterwards which parameters a step did not reach: torch.optim leaves a parameter alone
// whose gradient is not defined, and ours are always defined, as views of one flat vector.
//
// A graph in which a gradient is added twice in one backward() (a backward() within a backward(),
// such as checkpointing) would make a block ready too soon. So the first pass is only looked at; if
// it does so, no block is ever told early.
//
// Thread-compatible; hooks run on torch's threads, on the CPU the one that calls backward().
// Several threads may call it at once.
class GradientWatch {
 public:
  // Runs on one of those threads, at most once per block and Arm(). Several such threads may run it
  // at once, for different blocks.
  using OnReady = std::function<void(BlockId)>;

  // `parameters` are those of the layout's trained segments, in their order, each with its gradient
  // where it is to stay: one that lies elsewhere when it was added to makes no block ready.
  GradientWatch(const ModelLayout& layout, const BlockMap& map,
                const std::vector<torch::Tensor>& parameters);
  // The hooks may stay alive in a graph; they do nothing any more.
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  // A step begins: nothing was reached yet. REQUIRES: as Arm().
  void BeginStep();
  // Whether each parameter was reached by some backward() since then.
  bool ReachedAll() const;
  // Elements of the parameters that no backward() since BeginStep() has reached, armed or not.
  ElementRuns Unreached() const;
  // Of those, the ones of parameters whose gradient is zero: one that is not was put there by other
  // means, and counts. `gradients` are those of all trained elements.
  ElementRuns Absent(absl::Span<const float> gradients) const;
  // The same where a device has them, as one vector. Waits for it. Throws what torch throws.
  ElementRuns Absent(const torch::Tensor& gradients) const;

  // From now on blocks are told, until Disarm(): each when `passes` calls of backward() have added
  // to all of its parameters. REQUIRES: disarmed; no backward() is running; `passes` are to come.
  void Arm(OnReady on_ready, int passes = 1);

  // FAILED_PRECONDITION names a parameter whose gradient was added once more after its block had
  // been told. Parameters that not all passes reach leave their blocks untold. Disarmed already:
  // OK.
  absl::Status Disarm();

 private:
  struct State;
  class Hook;

  ElementRuns UnreachedWhere(const std::function<bool(const ElementRun& elements)>& wanted) const;

  const std::shared_ptr<State> state_;
  // A parameter refers to its accumulating node weakly; without us the hook would go with the
  // graph.
  std::vector<std::shared_ptr<void>> nodes_;
};

}  // namespace torchps
