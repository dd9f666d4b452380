// Measures: how fast one core applies a gradient to the parameters it holds, per optimizer, next
// to memcpy of as many floats in the same run, which is the least that any server has to do.
//
// The state is a row of 1 MiB blocks as a server keeps them, visited one after the other, each
// with all its slots. `cold` rows are larger than the caches, so every byte comes from memory;
// `warm` is one block with its gradient over and over. Rates are per second of processor time, so
// a neighbour on the same core does not count. Two are told:
//
//   gradient: bytes of gradient consumed (memcpy: bytes copied). What the wire has to bring.
//   memory: bytes read and written, values and slots both ways, gradient one way.
//
// bench/README.md has the command and says how to read the figures.

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "benchmark/benchmark.h"
#include "common/check.h"
#include "google/protobuf/text_format.h"
#include "server/optimizer/optimizer.h"

namespace torchps {
namespace {

constexpr int64_t kBlockElements = (1 << 20) / sizeof(float);
constexpr int64_t kColdBlocks = 256;
constexpr int64_t kWarmBlocks = 1;

using Floats = std::vector<float>;

Floats RandomFloats(int64_t n) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  Floats floats(n);
  for (float& f : floats) f = uniform(random);
  return floats;
}

// `arrays`: how many float arrays one pass reads or writes, counting both.
void Report(benchmark::State& state, int64_t elements, int arrays) {
  const double bytes = static_cast<double>(state.iterations()) * elements * sizeof(float);
  const auto rate = benchmark::Counter::kIsRate;
  state.counters["gradient"] = benchmark::Counter(bytes, rate, benchmark::Counter::kIs1000);
  state.counters["memory"] = benchmark::Counter(bytes * arrays, rate, benchmark::Counter::kIs1000);
}

void Memcpy(benchmark::State& state, int64_t blocks) {
  const int64_t elements = blocks * kBlockElements;
  const Floats from = RandomFloats(elements);
  Floats to(elements);
  for (auto _ : state) {
    for (int64_t begin = 0; begin < elements; begin += kBlockElements) {
      std::memcpy(to.data() + begin, from.data() + begin, kBlockElements * sizeof(float));
      benchmark::ClobberMemory();
    }
  }
  Report(state, elements, 2);
}

void Apply(benchmark::State& state, const std::string& text, int64_t blocks) {
  OptimizerSpec spec;
  TPS_CHECK(google::protobuf::TextFormat::ParseFromString(text, &spec), "spec of the benchmark");
  const absl::StatusOr<std::unique_ptr<Optimizer>> optimizer = MakeOptimizer(spec);
  TPS_CHECK(optimizer.ok(), "optimizer of the benchmark");

  const int64_t elements = blocks * kBlockElements;
  const Floats gradient = RandomFloats(elements);
  Floats values = RandomFloats(elements);
  std::vector<Floats> slots((*optimizer)->slots(), Floats(elements));
  std::vector<float*> block_slots(slots.size());
  ApplyParameters parameters;
  parameters.learning_rate = 1e-3;
  parameters.weight_decay = 1e-4;

  for (auto _ : state) {
    for (int64_t begin = 0; begin < elements; begin += kBlockElements) {
      for (size_t i = 0; i < slots.size(); ++i) block_slots[i] = slots[i].data() + begin;
      (*optimizer)
          ->Apply(parameters, values.data() + begin, block_slots, gradient.data() + begin,
                  kBlockElements);
      benchmark::ClobberMemory();
    }
    ++parameters.step;
  }
  Report(state, elements, 3 + 2 * (*optimizer)->slots());
}

void RegisterAll() {
  const std::vector<std::pair<std::string, std::string>> optimizers = {
      {"sgd", "sgd {}"},
      {"sgd_momentum", "sgd { momentum: 0.9 }"},
      {"sgd_nesterov", "sgd { momentum: 0.9 nesterov: true }"},
      {"adam", "adam { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }"},
      {"adamw", "adamw { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }"},
      {"adagrad", "adagrad { epsilon: 1e-10 }"},
      {"rmsprop", "rmsprop { alpha: 0.99 epsilon: 1e-8 }"},
      {"rmsprop_centered_momentum",
       "rmsprop { alpha: 0.99 epsilon: 1e-8 momentum: 0.9 centered: true }"},
  };
  const std::vector<std::pair<std::string, int64_t>> sizes = {{"cold", kColdBlocks},
                                                              {"warm", kWarmBlocks}};
  for (const auto& [size, blocks] : sizes) {
    benchmark::RegisterBenchmark((size + "/memcpy").c_str(), Memcpy, blocks);
    for (const auto& [name, text] : optimizers) {
      benchmark::RegisterBenchmark((size + "/" + name).c_str(), Apply, text, blocks);
    }
  }
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  torchps::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
