#include "torchps/worker/gradient/gradient_watch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/function_hook.h"
#include "torch/csrc/autograd/variable.h"
#include "torchps/common/check.h"
#include "torchps/common/mutex.h"

namespace torchps {

struct GradientWatch::State {
  struct Parameter {
    std::string name;
    torch::Tensor tensor;
    // The required address of the gradient.
    const void* gradient = nullptr;
    std::vector<BlockId> blocks;
    ElementRun elements;
  };

  // Handles a gradient added to parameter `index`.
  void OnGradient(size_t index) ABSL_LOCKS_EXCLUDED(mutex);

  std::vector<Parameter> parameters;
  // By block: the number of parameters with elements in it.
  std::vector<int> parameters_of;

  Mutex mutex;
  bool armed ABSL_GUARDED_BY(mutex) = false;
  // By parameter: a gradient was added in this step.
  std::vector<bool> reached ABSL_GUARDED_BY(mutex);
  OnReady on_ready ABSL_GUARDED_BY(mutex);
  // True until the first Disarm().
  bool observing ABSL_GUARDED_BY(mutex) = true;
  // False if a gradient was added more than `passes` times while `observing`. Blocks are then never
  // reported.
  bool early ABSL_GUARDED_BY(mutex) = true;
  // The number of additions that make a gradient final.
  int passes ABSL_GUARDED_BY(mutex) = 1;
  // Since Arm(). By parameter: the number of additions to the gradient. By block: the number of
  // parameters without a final gradient.
  std::vector<int> added ABSL_GUARDED_BY(mutex);
  std::vector<int> missing ABSL_GUARDED_BY(mutex);
  absl::Status status ABSL_GUARDED_BY(mutex);
};

void GradientWatch::State::OnGradient(size_t index) {
  const Parameter& parameter = parameters[index];
  std::vector<BlockId> ready;
  OnReady tell;
  {
    MutexLock lock(&mutex);
    reached[index] = true;
    if (!armed) return;
    if (++added[index] < passes) return;
    if (added[index] > passes) {
      if (observing) {
        early = false;
      } else if (early && status.ok()) {
        status = absl::FailedPreconditionError(
            absl::StrCat("the gradient of '", parameter.name, "' was added to twice in one ",
                         "backward(), which did not happen in the first step"));
      }
      return;
    }
    const torch::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined() || gradient.data_ptr() != parameter.gradient) return;
    for (const BlockId block : parameter.blocks) {
      if (--missing[block] == 0) ready.push_back(block);
    }
    if (observing || !early) return;
    tell = on_ready;
  }
  for (const BlockId block : ready) tell(block);
}

class GradientWatch::Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(std::shared_ptr<State> state, size_t index) : state_(std::move(state)), index_(index) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    // The graph may reach a parameter with an undefined gradient, which is not added.
    if (!inputs.empty() && inputs[0].defined()) state_->OnGradient(index_);
    return outputs;
  }

 private:
  const std::shared_ptr<State> state_;
  const size_t index_;
};

GradientWatch::GradientWatch(const ModelLayout& layout, const BlockMap& map,
                             const std::vector<torch::Tensor>& parameters)
    : state_(std::make_shared<State>()) {
  state_->parameters_of.resize(map.blocks().size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Segment& segment = layout.segments()[i];
    TPS_CHECK(!segment.averaged, "trained segments come first");
    State::Parameter parameter;
    parameter.name = segment.name;
    parameter.tensor = parameters[i];
    parameter.gradient = parameters[i].grad().data_ptr();
    parameter.elements = {segment.offset, segment.offset + segment.length};
    for (const BlockRange& block : map.blocks()) {
      if (block.averaged || segment.length == 0) continue;
      if (block.offset < segment.offset + segment.length &&
          segment.offset < block.offset + block.length) {
        parameter.blocks.push_back(block.id);
        ++state_->parameters_of[block.id];
      }
    }
    state_->parameters.push_back(std::move(parameter));
    // grad_accumulator() returns a std::shared_ptr, or a c10::intrusive_ptr since libtorch 2.14.
    const auto node = torch::autograd::impl::grad_accumulator(parameters[i]);
    node->add_post_hook(std::make_unique<Hook>(state_, i));
    nodes_.push_back(std::make_shared<std::decay_t<decltype(node)>>(node));
  }
  BeginStep();
}

GradientWatch::~GradientWatch() { Disarm().IgnoreError(); }

void GradientWatch::BeginStep() {
  MutexLock lock(&state_->mutex);
  state_->reached.assign(state_->parameters.size(), false);
}

bool GradientWatch::ReachedAll() const {
  MutexLock lock(&state_->mutex);
  return std::find(state_->reached.begin(), state_->reached.end(), false) == state_->reached.end();
}

ElementRuns GradientWatch::UnreachedWhere(
    const std::function<bool(const ElementRun& elements)>& wanted) const {
  ElementRuns runs;
  MutexLock lock(&state_->mutex);
  for (size_t i = 0; i < state_->parameters.size(); ++i) {
    const ElementRun& elements = state_->parameters[i].elements;
    if (state_->reached[i] || !wanted(elements)) continue;
    AppendRun(elements.begin, elements.end, &runs);
  }
  return runs;
}

ElementRuns GradientWatch::Unreached() const {
  return UnreachedWhere([](const ElementRun&) { return true; });
}

ElementRuns GradientWatch::Absent(absl::Span<const float> gradients) const {
  return UnreachedWhere([gradients](const ElementRun& elements) {
    const auto gradient = gradients.subspan(elements.begin, elements.end - elements.begin);
    return std::all_of(gradient.begin(), gradient.end(),
                       [](float element) { return element == 0; });
  });
}

ElementRuns GradientWatch::Absent(const torch::Tensor& gradients) const {
  const torch::NoGradGuard no_grad;
  return UnreachedWhere([&gradients](const ElementRun& elements) {
    return !gradients.narrow(0, elements.begin, elements.end - elements.begin)
                .ne(0)
                .any()
                .item<bool>();
  });
}

void GradientWatch::Arm(OnReady on_ready, int passes) {
  MutexLock lock(&state_->mutex);
  TPS_CHECK(!state_->armed, "a watch was armed twice");
  state_->armed = true;
  state_->on_ready = std::move(on_ready);
  state_->passes = passes;
  state_->added.assign(state_->parameters.size(), 0);
  state_->missing = state_->parameters_of;
  state_->status = absl::OkStatus();
}

absl::Status GradientWatch::Disarm() {
  MutexLock lock(&state_->mutex);
  if (!state_->armed) return absl::OkStatus();
  state_->armed = false;
  state_->observing = false;
  state_->on_ready = nullptr;
  return state_->status;
}

}  // namespace torchps
