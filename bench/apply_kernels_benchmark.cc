// Measures how fast a core applies a gradient to parameters, by optimizer and instruction set. The
// baseline is the memory bandwidth: a loop that reads and writes the same arrays without
// computation, run alternately with the optimizer.
//
// The state is a row of 1 MiB blocks as in a server, processed one by one with the optimizer slots.
// `cold` rows exceed the caches, so the data is read from memory. `warm` repeats one block. If
// there are two threads, each uses a separate row. Times are processor time of the thread, so other
// load on the core does not count. The columns are:
//
//   gradient: GB/s of gradient consumed by one thread: the rate that the network must deliver.
//   memory: GB/s read and written: values and slots both ways, gradient one way.
//   of_limit: time of the empty loop / time of the optimizer. 1 is the memory limit.
//
// `denormal` rows begin each pass with slots that have decayed below the smallest normal float.
// `unflushed` is the same loop without the optimizers' protection against denormals. `finite` is
// the check for non-finite values that each gradient passes.
//
// bench/README.md contains the command and explains the figures.

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "benchmark/benchmark.h"
#include "google/protobuf/text_format.h"
#include "torchps/common/check.h"
#include "torchps/common/cpu/cpu_flags.h"
#include "torchps/common/cpu/finite_check.h"
#include "torchps/server/optimizer/elementwise.h"
#include "torchps/server/optimizer/optimizer.h"

namespace torchps {
namespace {

constexpr int64_t kBlockElements = (1 << 20) / sizeof(float);
constexpr int64_t kColdBlocks = 192;
constexpr int64_t kWarmBlocks = 1;
// The number of workers in the job. Optimizers with delayed momentum take a different step once in
// this many steps.
constexpr int kWorkers = 4;

using Floats = std::vector<float>;

// Returns random numbers, the same in each block.
Floats RandomFloats(int64_t blocks) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  Floats floats(blocks * kBlockElements);
  for (int64_t i = 0; i < kBlockElements; ++i) floats[i] = uniform(random);
  for (int64_t block = 1; block < blocks; ++block) {
    std::copy_n(floats.begin(), kBlockElements, floats.begin() + block * kBlockElements);
  }
  return floats;
}

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The minimal operation that reads and writes the same memory as an optimizer with these slots,
// without changing it.
struct Touch {
  float zero;

  template <typename... Slots>
  [[gnu::always_inline]] void operator()(float gradient, float& value, Slots&... slots) const {
    value += zero * gradient;
    ((slots += zero * gradient), ...);
  }
};

void TouchAll(const float* gradient, float* values, absl::Span<float* const> slots, int64_t n) {
  static volatile float zero = 0;  // hidden from the optimizer of the compiler
  const Touch touch{zero};
  const InstructionSet set = BestInstructionSet();
  switch (slots.size()) {
    case 0:
      return ForEachElement(set, touch, n, gradient, values);
    case 1:
      return ForEachElement(set, touch, n, gradient, values, slots[0]);
    case 2:
      return ForEachElement(set, touch, n, gradient, values, slots[0], slots[1]);
    default:
      return ForEachElement(set, touch, n, gradient, values, slots[0], slots[1], slots[2]);
  }
}

// Values, slots and gradient for a row of blocks.
class Row {
 public:
  Row(int64_t blocks, int slots)
      : gradient_(RandomFloats(blocks)),
        values_(RandomFloats(blocks)),
        slots_(slots, Floats(blocks * kBlockElements, 1.0f)),
        block_slots_(slots) {}

  int64_t elements() const { return static_cast<int64_t>(values_.size()); }
  void FillSlots(float value) {
    for (Floats& slot : slots_) std::fill(slot.begin(), slot.end(), value);
  }
  void ClearGradient() { std::fill(gradient_.begin(), gradient_.end(), 0.0f); }

  // Returns the thread's processor time, in seconds, for calling apply(gradient, values, slots, n)
  // on each block of the row.
  template <typename Apply>
  double GetTime(Apply apply) {
    const double begin = ThreadSeconds();
    for (int64_t at = 0; at < elements(); at += kBlockElements) {
      for (size_t i = 0; i < slots_.size(); ++i) block_slots_[i] = slots_[i].data() + at;
      apply(gradient_.data() + at, values_.data() + at, absl::MakeConstSpan(block_slots_),
            kBlockElements);
      benchmark::ClobberMemory();
    }
    return ThreadSeconds() - begin;
  }

 private:
  Floats gradient_;
  Floats values_;
  std::vector<Floats> slots_;
  std::vector<float*> block_slots_;
};

// Reports the counters. `arrays` is the number of float arrays that one pass reads plus the number
// that it writes.
void Report(benchmark::State& state, double bytes, int arrays, double seconds, double limit) {
  const auto average = benchmark::Counter::kAvgThreads;
  state.counters["gradient"] = benchmark::Counter(bytes / seconds / 1e9, average);
  state.counters["memory"] = benchmark::Counter(bytes * arrays / seconds / 1e9, average);
  state.counters["of_limit"] = benchmark::Counter(limit / seconds, average);
}

template <typename Prepare, typename Apply>
void Measure(benchmark::State& state, Row& row, int slots, Prepare prepare, Apply apply) {
  double seconds = 0;
  double limit = 0;
  int64_t passes = 0;
  for (auto _ : state) {
    limit += row.GetTime(TouchAll);
    prepare();
    const double pass = row.GetTime(apply);
    state.SetIterationTime(pass);
    seconds += pass;
    ++passes;
  }
  Report(state, static_cast<double>(passes * row.elements()) * sizeof(float), 3 + 2 * slots,
         seconds, limit);
}

OptimizerSpec Spec(const std::string& text) {
  OptimizerSpec spec;
  TPS_CHECK(google::protobuf::TextFormat::ParseFromString(text, &spec), "spec of the benchmark");
  return spec;
}

std::unique_ptr<Optimizer> Make(const OptimizerSpec& spec, InstructionSet set) {
  absl::StatusOr<std::unique_ptr<Optimizer>> optimizer = MakeOptimizer(spec, set, kWorkers);
  TPS_CHECK(optimizer.ok(), "optimizer of the benchmark");
  return *std::move(optimizer);
}

ApplyParameters Parameters() {
  ApplyParameters parameters;
  parameters.learning_rate = 1e-3;
  parameters.weight_decay = 1e-4;
  parameters.step = 0;
  return parameters;
}

void Apply(benchmark::State& state, const std::string& text, InstructionSet set, int64_t blocks,
           bool denormal) {
  const std::unique_ptr<Optimizer> optimizer = Make(Spec(text), set);
  Row row(blocks, optimizer->slots());
  if (denormal) row.ClearGradient();
  ApplyParameters parameters = Parameters();
  if (denormal) parameters.weight_decay = 0;
  Measure(
      state, row, optimizer->slots(),
      [&] {
        ++parameters.step;
        if (denormal) row.FillSlots(1e-39f);
      },
      [&](const float* gradient, float* values, absl::Span<float* const> slots, int64_t n) {
        optimizer->Apply(parameters, values, slots, gradient, n);
      });
}

// SGD with momentum, without the protection against denormals.
struct Momentum {
  float rate;
  float momentum;

  [[gnu::always_inline]] void operator()(float gradient, float& value, float& buffer) const {
    buffer = momentum * buffer + gradient;
    value -= rate * buffer;
  }
};

void Unflushed(benchmark::State& state) {
  Row row(kWarmBlocks, 1);
  row.ClearGradient();
  Measure(
      state, row, 1, [&] { row.FillSlots(1e-39f); },
      [](const float* gradient, float* values, absl::Span<float* const> slots, int64_t n) {
        RunVectorised<ElementLoop<Momentum>>(BestInstructionSet(), Momentum{1e-3f, 0.9f}, n,
                                             gradient, values, slots[0]);
      });
}

void Finite(benchmark::State& state, InstructionSet set, int64_t blocks) {
  Row row(blocks, 0);
  double seconds = 0;
  int64_t passes = 0;
  for (auto _ : state) {
    const double pass =
        row.GetTime([set](const float* gradient, float*, absl::Span<float* const>, int64_t n) {
          benchmark::DoNotOptimize(FirstNonFinite(absl::MakeConstSpan(gradient, n), set));
        });
    state.SetIterationTime(pass);
    seconds += pass;
    ++passes;
  }
  state.counters["gradient"] =
      static_cast<double>(passes * row.elements()) * sizeof(float) / seconds / 1e9;
}

void RegisterAll() {
  const std::vector<std::pair<std::string, std::string>> optimizers = {
      {"sgd", "sgd {}"},
      {"sgd_momentum", "sgd { momentum: 0.9 }"},
      {"sgd_nesterov", "sgd { momentum: 0.9 nesterov: true }"},
      {"sgd_delayed", "sgd { momentum: 0.9 momentum_at: DELAYED }"},
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
    for (const auto& [name, text] : optimizers) {
      const bool compared = name == "sgd" || name == "sgd_momentum" || name == "adamw";
      for (const InstructionSet set : InstructionSets()) {
        if (set != BestInstructionSet() && !compared) continue;
        const std::string row = size + "/" + name + "/" + std::string(InstructionSetName(set));
        auto* const registered =
            benchmark::RegisterBenchmark(row.c_str(), Apply, text, set, blocks, false)
                ->UseManualTime();
        if (set == BestInstructionSet()) registered->Threads(1)->Threads(2);
      }
    }
    for (const InstructionSet set : InstructionSets()) {
      const std::string row = size + "/finite/" + std::string(InstructionSetName(set));
      benchmark::RegisterBenchmark(row.c_str(), Finite, set, blocks)->UseManualTime();
    }
  }
  for (const auto& [name, text] : optimizers) {
    if (name == "sgd") continue;
    benchmark::RegisterBenchmark(("denormal/" + name).c_str(), Apply, text, BestInstructionSet(),
                                 kWarmBlocks, true)
        ->UseManualTime();
  }
  benchmark::RegisterBenchmark("denormal/unflushed", Unflushed)->UseManualTime();
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
