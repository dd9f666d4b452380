// Compares an optimizer of torchps with torch.optim in the installed libtorch: one vector of 16 Mi
// float32 parameters, one thread, alternating steps. The column of_torch is the time of torch's
// step / the time of torchps's step (2 is twice as fast).
//
// bench/README.md contains the command.

#include <ATen/Parallel.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "google/protobuf/text_format.h"
#include "torchps/common/check.h"
#include "torchps/server/optimizer/optimizer.h"

namespace torchps {
namespace {

constexpr int64_t kElements = int64_t{16} << 20;
constexpr double kRate = 1e-3;

std::unique_ptr<torch::optim::Optimizer> Torch(const std::string& name, torch::Tensor parameter) {
  const std::vector<torch::Tensor> parameters = {parameter};
  if (name == "adam") {
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(kRate));
  }
  if (name == "adamw") {
    return std::make_unique<torch::optim::AdamW>(
        parameters, torch::optim::AdamWOptions(kRate).weight_decay(0.01));
  }
  return std::make_unique<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(kRate).momentum(0.9));
}

std::unique_ptr<Optimizer> Ours(const std::string& name) {
  OptimizerSpec spec;
  const std::string text = name == "sgd_momentum"
                               ? "sgd { momentum: 0.9 }"
                               : name + " { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }";
  TPS_CHECK(google::protobuf::TextFormat::ParseFromString(text, &spec), "spec of the benchmark");
  return *MakeOptimizer(spec);
}

template <typename Work>
double Seconds(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Compare(benchmark::State& state, const std::string& name) {
  torch::Tensor parameter = torch::ones({kElements});
  parameter.mutable_grad() = torch::full({kElements}, 0.5f);
  const auto torch_optimizer = Torch(name, parameter);
  torch_optimizer->step();  // creates the state

  const std::unique_ptr<Optimizer> ours = Ours(name);
  std::vector<float> values(kElements, 1.0f);
  const std::vector<float> gradient(kElements, 0.5f);
  std::vector<std::vector<float>> slots(ours->slots(), std::vector<float>(kElements));
  std::vector<float*> pointers;
  for (std::vector<float>& slot : slots) pointers.push_back(slot.data());
  ApplyParameters parameters;
  parameters.learning_rate = kRate;
  parameters.weight_decay = name == "adamw" ? 0.01 : 0;

  double torch_seconds = 0;
  double our_seconds = 0;
  for (auto _ : state) {
    torch_seconds += Seconds([&] { torch_optimizer->step(); });
    const double step = Seconds([&] {
      ours->Apply(parameters, values.data(), pointers, gradient.data(), kElements);
      benchmark::ClobberMemory();
    });
    ++parameters.step;
    our_seconds += step;
    state.SetIterationTime(step);
  }
  state.counters["of_torch"] = torch_seconds / our_seconds;
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  at::set_num_threads(1);
  for (const char* name : {"adam", "adamw", "sgd_momentum"}) {
    benchmark::RegisterBenchmark(name, torchps::Compare, std::string(name))->UseManualTime();
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
