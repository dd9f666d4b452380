#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/cpu/instruction_set.h"
#include "common/ids.h"
#include "proto/job.pb.h"

namespace torchps {

// What one Apply needs besides the floats.
struct ApplyParameters {
  // The rate that holds for these elements and this step: group factor,
  // schedule and lag contract are already in it.
  double learning_rate = 0;
  double weight_decay = 0;
  // Which gradient of its block this is, from 1: the block's version + 1.
  Version step = 1;
};

// How one gradient changes the values of a block: a loop over floats, in place,
// with the definitions of torch.optim.
//
// Stateless after construction, so thread-safe. What an optimizer remembers
// between steps lies in the slots, which the caller keeps beside the values:
// `slots()` float32 arrays of their length. Every element is treated by itself,
// so a block may be handed over in pieces (frames as they arrive, runs of one
// parameter group) as long as all pieces get the same `step`.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // As the field of OptimizerSpec: "sgd", "adam", ...
  virtual absl::string_view name() const = 0;

  virtual int slots() const = 0;
  // torch.optim's name of slot i, e.g. "exp_avg". REQUIRES: 0 <= i < slots().
  virtual absl::string_view slot_name(int i) const = 0;

  // Sets slots of n elements to what they are before the first step: zeros
  // unless overridden. REQUIRES: slots.size() == slots().
  virtual void InitializeSlots(absl::Span<float* const> slots, int64_t n) const;

  // One pass over n elements; values, each slots[i] and gradient are parallel
  // arrays that do not overlap. `gradient` may lie at any byte address (it is
  // read where the network put it), values and slots at addresses of floats. n
  // = 0 does nothing. Denormal numbers, read or computed, count as zero, so
  // that moments that decay do not slow it down. REQUIRES: slots.size() == slots(), parameters.step
  // >= 1.
  virtual void Apply(const ApplyParameters& parameters, float* values,
                     absl::Span<float* const> slots, const float* gradient, int64_t n) const = 0;
};

// The optimizer that a normalised spec (job/job_spec.h) asks for, in loops for `set`, which this
// machine has, in a job of so many `workers`, which only delayed momentum uses. It computes the
// same bits with every set. INVALID_ARGUMENT names the field: no kind chosen, or a value missing
// that normalising fills in.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerSpec& spec,
                                                         InstructionSet set = BestInstructionSet(),
                                                         int workers = 1);

}  // namespace torchps
