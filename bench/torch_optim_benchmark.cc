// Measures: torch::optim's own steps over one flat parameter as large as the `cold` rows of
// apply_kernels_benchmark, on one thread, as what a process without servers would do. Told are, as
// there, of one thread's processor time:
//
//   gradient: GB/s of gradient consumed.
//
// One flat tensor is the best case for torch: a model's many small ones cost it more.

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdint>

#include "benchmark/benchmark.h"

namespace torchps {
namespace {

constexpr int64_t kElements = (192 << 20) / sizeof(float);

template <typename Optimizer, typename Options>
void Step(benchmark::State& state, Options options) {
  const torch::Tensor parameter = torch::randn({kElements});
  parameter.set_requires_grad(true);
  parameter.mutable_grad() = torch::randn({kElements});
  Optimizer optimizer(std::vector<torch::Tensor>{parameter}, options);
  optimizer.step();  // makes its slots
  for (auto _ : state) optimizer.step();
  const double bytes = static_cast<double>(state.iterations() * kElements) * sizeof(float);
  state.counters["gradient"] = benchmark::Counter(bytes / 1e9, benchmark::Counter::kIsRate);
}

void Register(const char* name, void (*step)(benchmark::State&)) {
  benchmark::RegisterBenchmark(name, step);
}

void RegisterAll() {
  using torch::optim::Adam;
  using torch::optim::AdamOptions;
  using torch::optim::AdamW;
  using torch::optim::AdamWOptions;
  using torch::optim::SGD;
  using torch::optim::SGDOptions;
  Register("torch/sgd", [](benchmark::State& state) { Step<SGD>(state, SGDOptions(1e-3)); });
  Register("torch/sgd_momentum",
           [](benchmark::State& state) { Step<SGD>(state, SGDOptions(1e-3).momentum(0.9)); });
  Register("torch/adam", [](benchmark::State& state) { Step<Adam>(state, AdamOptions(1e-3)); });
  Register("torch/adamw", [](benchmark::State& state) { Step<AdamW>(state, AdamWOptions(1e-3)); });
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  at::set_num_threads(1);
  torch::manual_seed(1);
  torchps::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
