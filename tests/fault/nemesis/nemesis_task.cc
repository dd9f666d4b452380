#include "tests/fault/nemesis/nemesis_task.h"

#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "torchps/data/dataset.h"

namespace torchps {
namespace {

// Few enough that epochs end during a trial. At each end a slot leaves the servers' clocks and
// enters them again.
constexpr int64_t kSamples = 400;

class Ones final : public Dataset {
 public:
  int64_t size() const override { return kSamples; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const auto rows = static_cast<int64_t>(indices.size());
    return Batch{torch::ones({rows, 1}), torch::zeros({rows})};
  }
};

// Contains one layer per block. The layers' weights are the counters and start at zero.
struct Counters : torch::nn::Module {
  Counters(NemesisWire* wire, int unit) : wire(wire), unit(static_cast<float>(unit)) {
    for (int block = 0; block < NemesisJob::kBlocks; ++block) {
      layers.push_back(register_module(
          absl::StrCat("block", block),
          torch::nn::Linear(torch::nn::LinearOptions(NemesisJob::kBlockElements, 1).bias(false))));
      torch::nn::init::zeros_(layers.back()->weight);
    }
  }

  // If the loss is the mean output, the gradient of a layer's weights is the mean input over the
  // batch. Each element is a quarter of a whole number, so sums of floats are exact.
  torch::Tensor forward(const torch::Tensor& ones) {
    const NemesisWire::Name name = wire->NameOfGradient();
    const torch::Tensor gradient = torch::tensor(NemesisJob::Gradient(name.slot, name.step));
    const torch::Tensor input = ones * gradient * unit;
    torch::Tensor sum = layers.front()->forward(input);
    for (size_t i = 1; i < layers.size(); ++i) sum = sum + layers[i]->forward(input);
    return sum;
  }

  NemesisWire* const wire;
  const float unit;
  std::vector<torch::nn::Linear> layers;
};

}  // namespace

Task MakeNemesisTask(NemesisWire* wire, int unit, std::function<void()> on_step) {
  DataSource data;
  data.train = std::make_shared<Ones>();
  Callbacks callbacks;
  callbacks.on_step = [on_step = std::move(on_step)](const Callbacks::Step&) { on_step(); };
  const Objective mean([](const Pass& pass) { return pass.output().mean(); });
  return Task(std::make_shared<Counters>(wire, unit), mean, data, callbacks);
}

}  // namespace torchps
