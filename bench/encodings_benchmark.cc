// Measures the cost of a lossy encoding at both ends of a push, on one core and without a network.
// The model of 96 blocks of 1 MiB exceeds the caches. The column `gradient` is GB/s of float32
// gradient, regardless of the encoded size. The slower end limits the speed of a push.
//
//   worker: ErrorFeedback::Encode of each block, with a new gradient from memory each time.
//   server: the handling of a frame: validation, check for non-finite values, SGD update. Each
//     block uses the same payload, which is in the caches as if just received.
//
// bench/README.md contains the command.

#include <time.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "bench/data_plane/numbers.h"
#include "benchmark/benchmark.h"
#include "client/error_feedback.h"
#include "common/block_map.h"
#include "common/check.h"
#include "common/cpu/aligned_array.h"
#include "common/model_layout.h"
#include "grpcpp/support/slice.h"
#include "server/store/block.h"
#include "server/store/block_journal.h"
#include "server/store/block_updater.h"
#include "wire/encoding.h"
#include "wire/frame_payload.h"

namespace torchps {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;
constexpr int64_t kBlocks = 96;
constexpr int64_t kElements = kBlocks * kBlockBytes / static_cast<int64_t>(sizeof(float));

EncodingSpec Spec(EncodingSpec::Kind kind) {
  EncodingSpec spec;
  spec.set_kind(kind);
  spec.set_fraction(0.01);
  return spec;
}

ModelLayout Layout() {
  Segment all;
  all.name = "all";
  all.shape = {kElements};
  return *ModelLayout::Create({all});
}

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs `pass` over the whole model repeatedly.
template <typename Pass>
void Measure(benchmark::State& state, Pass pass) {
  double seconds = 0;
  int64_t passes = 0;
  for (auto _ : state) {
    const double begin = ThreadSeconds();
    pass();
    const double took = ThreadSeconds() - begin;
    state.SetIterationTime(took);
    seconds += took;
    ++passes;
  }
  state.counters["gradient"] =
      static_cast<double>(passes * kElements) * sizeof(float) / seconds / 1e9;
}

void Worker(benchmark::State& state, EncodingSpec::Kind kind) {
  const BlockMap map = *BlockMap::Create(Layout(), kBlockBytes, /*servers=*/1);
  // Aligned like torch tensors.
  AlignedArray<float> gradient(kElements);
  const std::vector<float> numbers = SomeFloats(kElements);
  std::copy(numbers.begin(), numbers.end(), gradient.begin());
  ErrorFeedback feedback(map, Spec(kind));
  Step step = 0;
  Measure(state, [&] {
    ++step;
    for (const BlockRange& block : map.blocks()) {
      benchmark::DoNotOptimize(feedback.Encode(
          block.id, step, absl::MakeConstSpan(gradient).subspan(block.offset, block.length)));
    }
  });
}

void Server(benchmark::State& state, EncodingSpec::Kind kind) {
  const ModelLayout layout = Layout();
  const BlockMap map = *BlockMap::Create(layout, kBlockBytes, /*servers=*/1);
  OptimizerSpec optimizer;
  optimizer.set_learning_rate(1e-6);
  optimizer.mutable_sgd();
  const std::unique_ptr<BlockUpdater> updater = *BlockUpdater::Create(optimizer, layout, map);
  const std::vector<float> values = SomeFloats(kElements);
  std::vector<std::unique_ptr<Block>> blocks;
  for (const BlockRange& range : map.blocks()) {
    blocks.push_back(std::make_unique<Block>(range));
    Block* const block = blocks.back().get();
    MutexLock lock(&block->mutex);
    updater->Allocate(block);
    const BlockChange change(block);
    std::copy_n(values.begin() + range.offset, range.length, block->values.begin());
  }
  const int64_t length = map.blocks().front().length;
  std::vector<uint8_t> bytes(EncodedBytes(kind, length, Spec(kind).fraction()));
  Encode(kind, absl::MakeConstSpan(values).subspan(0, length), Spec(kind).fraction(), bytes.data());
  const FramePayload payload({grpc::Slice(bytes.data(), bytes.size())}, 0, kind);
  Measure(state, [&] {
    for (const std::unique_ptr<Block>& block : blocks) {
      TPS_CHECK(payload.Check(length).ok(), "the payload is well formed");
      TPS_CHECK(payload.FirstNonFinite() < 0, "and finite");
      MutexLock lock(&block->mutex);
      updater->Apply(block.get(), payload, GradientTerms());
    }
  });
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) {
  using torchps::EncodingSpec;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const EncodingSpec::Kind kind :
       {EncodingSpec::FLOAT32, EncodingSpec::BFLOAT16, EncodingSpec::INT8, EncodingSpec::TOP_K}) {
    const std::string name = EncodingSpec::Kind_Name(kind);
    if (kind != EncodingSpec::FLOAT32) {
      benchmark::RegisterBenchmark(("worker/" + name).c_str(), torchps::Worker, kind)
          ->UseManualTime();
    }
    benchmark::RegisterBenchmark(("server/" + name).c_str(), torchps::Server, kind)
        ->UseManualTime();
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
