#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "torchps/common/cpu/cpu_flags.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Hyperparameters of one parameter group. The learning rate is the base rate times the group's
// factor. In each step, the schedule and the push's rate factor (GradientTerms) multiply it.
struct GroupHyperparameters {
  double learning_rate = 0;
  double weight_decay = 0;
};

// Hyperparameters of each group of a normalized job. The Segment of a parameter names the group
// (torchps/job/optimizer_fields.h). Immutable, so thread-safe; copyable.
class ParameterGroups {
 public:
  explicit ParameterGroups(const OptimizerSpec& spec);

  // Number of groups in the job. Group -1, which holds the defaults, is not included.
  int size() const { return static_cast<int>(of_.size()) - 1; }

  // REQUIRES: -1 <= group < size().
  const GroupHyperparameters& Of(int group) const { return of_[group + 1]; }

 private:
  std::vector<GroupHyperparameters> of_;  // [0] is group -1
};

// Parameters of one Apply call.
struct ApplyParameters {
  // Learning rate for these elements and this step: the group's rate times the factors of the
  // schedule and of the push.
  double learning_rate = 0;
  double weight_decay = 0;
  // The optimizer's step for these elements, from 1: the block's version + 1, less the steps that
  // the elements missed (MissedSteps).
  Version step = 1;
};

// Applies one gradient to the values of a block in place, as torch.optim defines it.
//
// Stateless after construction, so thread-safe. The state between steps is in optimizer slots:
// `slots()` float32 arrays of the same length as the values, which the caller owns. Each element is
// independent, so the caller may pass a block in pieces, for example one piece for each parameter
// group.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Name as in OptimizerSpec: "sgd", "adam", ...
  virtual absl::string_view name() const = 0;

  virtual int slots() const = 0;
  // Name of slot i in torch.optim, for example "exp_avg".
  // REQUIRES: 0 <= i < slots().
  virtual absl::string_view slot_name(int i) const = 0;

  // Sets slots of n elements to their state before the first step, zeros by default.
  // REQUIRES: slots.size() == slots().
  virtual void InitializeSlots(absl::Span<float* const> slots, int64_t n) const;

  // Applies n elements of a gradient. Values, slots[i] and gradient are parallel arrays that do not
  // overlap. `gradient` may be at any byte address, because it is read from the network buffer;
  // values and slots are aligned to floats. n may be 0. Denormals, read or computed, count as zero,
  // so that decaying moments do not slow this down.
  // REQUIRES: slots.size() == slots(), parameters.step >= 1.
  virtual void Apply(const ApplyParameters& parameters, float* values,
                     absl::Span<float* const> slots, const float* gradient, int64_t n) const = 0;
};

// Returns the optimizer for a normalized spec (torchps/job/job_spec.h), with loops for `set`, which
// this machine must support. Only delayed momentum uses `workers`, the job's number of workers. The
// results have the same bits with each instruction set. INVALID_ARGUMENT: a kind or a value is
// missing in the spec; the message names the field.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerSpec& spec,
                                                         InstructionSet set = BestInstructionSet(),
                                                         int workers = 1);

}  // namespace torchps
