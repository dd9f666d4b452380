#include "torchps/server/optimizer/optimizer.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"
#include "torchps/job/job_spec.h"
#include "torchps/job/optimizer_fields.h"
#include "torchps/server/optimizer/adaptive.h"
#include "torchps/server/optimizer/sgd.h"

namespace torchps {

ParameterGroups::ParameterGroups(const OptimizerSpec& spec) {
  // If momentum is at the workers, they have already added the decay to the gradient.
  const bool decays = !MomentumInWorkers(spec);
  of_.reserve(spec.group_size() + 1);
  for (int group = -1; group < spec.group_size(); ++group) {
    // Normalization leaves this field unset if the group does not set it.
    const double factor = group >= 0 && spec.group(group).has_learning_rate_factor()
                              ? spec.group(group).learning_rate_factor()
                              : 1.0;
    of_.push_back({spec.learning_rate() * factor, decays ? GetWeightDecay(spec, group) : 0.0});
  }
}

namespace {

absl::Status Missing(absl::string_view field) {
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer.", field, " is missing: an optimizer needs a normalised job"));
}

// Adam and AdamW have the same fields in two messages.
template <typename Spec>
absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdam(const Spec& spec, absl::string_view name,
                                                    Adam::Decay decay, InstructionSet set) {
  if (!spec.has_beta1()) return Missing(absl::StrCat(name, ".beta1"));
  if (!spec.has_beta2()) return Missing(absl::StrCat(name, ".beta2"));
  if (!spec.has_epsilon()) return Missing(absl::StrCat(name, ".epsilon"));
  Adam::Options options;
  options.beta1 = spec.beta1();
  options.beta2 = spec.beta2();
  options.epsilon = spec.epsilon();
  options.decay = decay;
  return std::make_unique<Adam>(options, set);
}

std::unique_ptr<Optimizer> MakeSgd(const SgdSpec& spec, InstructionSet set, int workers) {
  if (spec.momentum_at() == SgdSpec::DELAYED) {
    return std::make_unique<DelayedNesterov>(DelayedNesterov::Options{spec.momentum(), workers},
                                             set);
  }
  Sgd::Options options;
  // If momentum is at the workers, pushes already include it.
  if (spec.momentum_at() != SgdSpec::WORKER) {
    options.momentum = spec.momentum();
    options.dampening = spec.dampening();
    options.nesterov = spec.nesterov();
  }
  return std::make_unique<Sgd>(options, set);
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdagrad(const AdagradSpec& spec,
                                                       InstructionSet set) {
  if (!spec.has_epsilon()) return Missing("adagrad.epsilon");
  Adagrad::Options options;
  options.lr_decay = spec.lr_decay();
  options.epsilon = spec.epsilon();
  options.initial_accumulator = spec.initial_accumulator();
  return std::make_unique<Adagrad>(options, set);
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeRmsProp(const RmsPropSpec& spec,
                                                       InstructionSet set) {
  if (!spec.has_alpha()) return Missing("rmsprop.alpha");
  if (!spec.has_epsilon()) return Missing("rmsprop.epsilon");
  RmsProp::Options options;
  options.alpha = spec.alpha();
  options.epsilon = spec.epsilon();
  options.momentum = spec.momentum();
  options.centered = spec.centered();
  return std::make_unique<RmsProp>(options, set);
}

}  // namespace

void Optimizer::InitializeSlots(absl::Span<float* const> slots, int64_t n) const {
  TPS_DCHECK(slots.size() == static_cast<size_t>(this->slots()), "one array per slot");
  for (float* const slot : slots) std::fill_n(slot, n, 0.0f);
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerSpec& spec,
                                                         InstructionSet set, int workers) {
  switch (spec.kind_case()) {
    case OptimizerSpec::kSgd:
      return MakeSgd(spec.sgd(), set, workers);
    case OptimizerSpec::kAdam:
      return MakeAdam(spec.adam(), "adam", Adam::Decay::kL2, set);
    case OptimizerSpec::kAdamw:
      return MakeAdam(spec.adamw(), "adamw", Adam::Decay::kDecoupled, set);
    case OptimizerSpec::kAdagrad:
      return MakeAdagrad(spec.adagrad(), set);
    case OptimizerSpec::kRmsprop:
      return MakeRmsProp(spec.rmsprop(), set);
    case OptimizerSpec::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "optimizer names no kind: one of sgd, adam, adamw, adagrad, rmsprop");
}

}  // namespace torchps
