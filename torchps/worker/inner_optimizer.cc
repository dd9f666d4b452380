#include "torchps/worker/inner_optimizer.h"

#include <map>
#include <utility>

#include "torch/optim/adagrad.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/optimizer.h"
#include "torch/optim/rmsprop.h"
#include "torch/optim/sgd.h"
#include "torchps/common/check.h"
#include "torchps/job/optimizer_fields.h"

namespace torchps {
namespace {

torch::optim::SGDOptions GetOptions(const SgdSpec& spec, double rate, double decay) {
  return torch::optim::SGDOptions(rate)
      .momentum(spec.momentum())
      .dampening(spec.dampening())
      .nesterov(spec.nesterov())
      .weight_decay(decay);
}

torch::optim::AdamOptions GetOptions(const AdamSpec& spec, double rate, double decay) {
  return torch::optim::AdamOptions(rate)
      .betas({spec.beta1(), spec.beta2()})
      .eps(spec.epsilon())
      .weight_decay(decay);
}

torch::optim::AdamWOptions GetOptions(const AdamWSpec& spec, double rate, double decay) {
  return torch::optim::AdamWOptions(rate)
      .betas({spec.beta1(), spec.beta2()})
      .eps(spec.epsilon())
      .weight_decay(decay);
}

torch::optim::AdagradOptions GetOptions(const AdagradSpec& spec, double rate, double decay) {
  return torch::optim::AdagradOptions(rate)
      .lr_decay(spec.lr_decay())
      .eps(spec.epsilon())
      .initial_accumulator_value(spec.initial_accumulator())
      .weight_decay(decay);
}

torch::optim::RMSpropOptions GetOptions(const RmsPropSpec& spec, double rate, double decay) {
  return torch::optim::RMSpropOptions(rate)
      .alpha(spec.alpha())
      .eps(spec.epsilon())
      .momentum(spec.momentum())
      .centered(spec.centered())
      .weight_decay(decay);
}

struct Parameter {
  torch::Tensor tensor;
  ElementRun elements;  // in the flat vector
  int group = -1;
};
using Parameters = std::vector<Parameter>;

template <typename TorchOptimizer, typename TorchOptions>
class TorchInnerOptimizer final : public InnerOptimizer {
 public:
  // The tensors and options of one of torch's parameter groups.
  struct Group {
    std::vector<torch::Tensor> tensors;
    TorchOptions options;
  };

  TorchInnerOptimizer(Parameters parameters, std::vector<Group> groups)
      : parameters_(std::move(parameters)) {
    std::vector<torch::optim::OptimizerParamGroup> made;
    for (Group& group : groups) {
      rates_.push_back(group.options.lr());
      made.emplace_back(std::move(group.tensors), std::make_unique<TorchOptions>(group.options));
    }
    optimizer_ = std::make_unique<TorchOptimizer>(std::move(made), groups.front().options);
  }

  void Step(double rate_factor, absl::Span<const ElementRun> absent) override {
    auto run = absent.begin();
    for (Parameter& parameter : parameters_) {
      while (run != absent.end() && run->end <= parameter.elements.begin) ++run;
      if (run == absent.end()) break;
      // Each run of absent elements covers whole parameters.
      if (run->begin <= parameter.elements.begin) parameter.tensor.mutable_grad() = torch::Tensor();
    }
    std::vector<torch::optim::OptimizerParamGroup>& groups = optimizer_->param_groups();
    for (size_t i = 0; i < groups.size(); ++i) {
      static_cast<TorchOptions&>(groups[i].options()).lr(rates_[i] * rate_factor);
    }
    optimizer_->step();
  }

 private:
  Parameters parameters_;
  std::vector<double> rates_;  // learning rates by group, before the schedule's factor
  std::unique_ptr<TorchOptimizer> optimizer_;
};

template <typename TorchOptimizer, typename TorchOptions, typename Kind>
std::unique_ptr<InnerOptimizer> Make(const OptimizerSpec& spec, const Kind& kind,
                                     Parameters parameters) {
  using Made = TorchInnerOptimizer<TorchOptimizer, TorchOptions>;
  std::map<int, std::vector<torch::Tensor>> members;
  for (const Parameter& parameter : parameters) {
    members[parameter.group].push_back(parameter.tensor);
  }
  std::vector<typename Made::Group> groups;
  for (auto& [group, tensors] : members) {
    const double factor = group < 0 ? 1.0 : spec.group(group).learning_rate_factor();
    groups.push_back({std::move(tensors), GetOptions(kind, spec.learning_rate() * factor,
                                                     GetWeightDecay(spec, group))});
  }
  return std::make_unique<Made>(std::move(parameters), std::move(groups));
}

// Returns the layout with each parameter's group from `spec` in place of the outer optimizer's.
absl::StatusOr<ModelLayout> GroupedBy(const OptimizerSpec& spec, const ModelLayout& layout) {
  std::vector<Segment> segments(layout.segments().begin(), layout.segments().end());
  for (Segment& segment : segments) {
    if (!segment.averaged) segment.group = GetGroup(spec, segment.name);
  }
  return ModelLayout::Create(std::move(segments));
}

}  // namespace

absl::StatusOr<std::unique_ptr<InnerOptimizer>> InnerOptimizer::Create(
    const OptimizerSpec& spec, const ModelLayout& layout,
    const std::vector<torch::Tensor>& tensors) {
  const absl::StatusOr<ModelLayout> grouped = GroupedBy(spec, layout);
  if (!grouped.ok()) return grouped.status();
  if (absl::Status used = CheckGroupsAreUsed(spec, *grouped); !used.ok()) return used;
  Parameters parameters;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Segment& segment = grouped->segments()[i];
    TPS_CHECK(!segment.averaged, "trained segments come first");
    const ElementRun elements = {segment.offset, segment.offset + segment.length};
    parameters.push_back({tensors[i], elements, segment.group});
  }
  namespace optim = torch::optim;
  switch (spec.kind_case()) {
    case OptimizerSpec::kSgd:
      return Make<optim::SGD, optim::SGDOptions>(spec, spec.sgd(), std::move(parameters));
    case OptimizerSpec::kAdam:
      return Make<optim::Adam, optim::AdamOptions>(spec, spec.adam(), std::move(parameters));
    case OptimizerSpec::kAdamw:
      return Make<optim::AdamW, optim::AdamWOptions>(spec, spec.adamw(), std::move(parameters));
    case OptimizerSpec::kAdagrad:
      return Make<optim::Adagrad, optim::AdagradOptions>(spec, spec.adagrad(),
                                                         std::move(parameters));
    case OptimizerSpec::kRmsprop:
      return Make<optim::RMSprop, optim::RMSpropOptions>(spec, spec.rmsprop(),
                                                         std::move(parameters));
    case OptimizerSpec::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("local.inner names no kind; expected a normalized job");
}

}  // namespace torchps
