#include "torchps/worker/feed/batch_loader.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "torch/types.h"
#include "torchps/common/mutex.h"

namespace torchps {
namespace {

// Dataset whose sample i is the number i. Reading sample 66 fails, and reading sample 77 throws.
// Records the samples that are read, and counts the batches that other threads read.
class Numbers final : public Dataset {
 public:
  int64_t size() const override { return 100; }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    if (indices[0] == 66) return absl::DataLossError("sample 66 is broken");
    if (indices[0] == 77) throw std::runtime_error("no sample 77");
    Batch batch{torch::empty({static_cast<int64_t>(indices.size()), 1}), {}};
    for (size_t i = 0; i < indices.size(); ++i) {
      batch.input[static_cast<int64_t>(i)][0] = static_cast<float>(indices[i]);
    }
    const MutexLock lock(&mutex_);
    fetched_.push_back(indices[0]);
    ahead_ += std::this_thread::get_id() == trainer_ ? 0 : 1;
    changed_.SignalAll();
    return batch;
  }

  // Blocks until threads other than the one that made this object have read this many batches.
  void AwaitAhead(int batches) const {
    const MutexLock lock(&mutex_);
    while (ahead_ < batches) changed_.Wait(&mutex_);
  }

  // Returns the first sample of each batch that was read, sorted.
  std::vector<int64_t> fetched() const {
    const MutexLock lock(&mutex_);
    std::vector<int64_t> sorted = fetched_;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

 private:
  const std::thread::id trainer_ = std::this_thread::get_id();
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable std::vector<int64_t> fetched_;
  mutable int ahead_ = 0;
};

Batch AddNoise(Batch batch, at::Generator generator) {
  batch.input += torch::rand(batch.input.sizes(), generator);
  return batch;
}

BatchLoader::Pass GetPass(int64_t first) {
  return {{first, first + 1}, static_cast<uint64_t>(first)};
}

TEST(BatchLoaderTest, ExpectedBatchesAreReadyBeforeUse) {
  const auto numbers = std::make_shared<Numbers>();
  BatchLoader loader(numbers, nullptr, /*threads=*/1);
  EXPECT_EQ(loader.ahead(), 2u);
  loader.Expect({GetPass(0), GetPass(10)});
  numbers->AwaitAhead(2);
  const absl::StatusOr<Batch> batch = loader.Take(GetPass(10));
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->input[1][0].item<float>(), 11);
  EXPECT_EQ(loader.Take(GetPass(0))->input[0][0].item<float>(), 0);
  EXPECT_EQ(numbers->fetched(), (std::vector<int64_t>{0, 10})) << "each of them once";
}

TEST(BatchLoaderTest, BatchesAreTheSameWithAnyThreadCount) {
  std::vector<torch::Tensor> made;
  for (const int threads : {0, 1, 3}) {
    BatchLoader loader(std::make_shared<Numbers>(), AddNoise, threads);
    std::vector<torch::Tensor> inputs;
    for (int64_t first = 0; first < 20; first += 2) {
      loader.Expect({GetPass(first), GetPass(first + 2), GetPass(first + 4)});
      const absl::StatusOr<Batch> batch = loader.Take(GetPass(first));
      ASSERT_TRUE(batch.ok()) << batch.status();
      inputs.push_back(batch->input);
    }
    made.push_back(torch::cat(inputs));
  }
  EXPECT_TRUE(torch::equal(made[1], made[0]));
  EXPECT_TRUE(torch::equal(made[2], made[0]));
}

TEST(BatchLoaderTest, DropsBatchesNoLongerExpectedAndLoadsOthersOnDemand) {
  const auto numbers = std::make_shared<Numbers>();
  BatchLoader loader(numbers, nullptr, /*threads=*/1);
  loader.Expect({GetPass(0), GetPass(10)});
  numbers->AwaitAhead(2);
  loader.Expect({GetPass(10), GetPass(20)});
  numbers->AwaitAhead(3);
  EXPECT_EQ(loader.Take(GetPass(10))->input[0][0].item<float>(), 10);
  EXPECT_EQ(loader.Take(GetPass(50))->input[0][0].item<float>(), 50);
  EXPECT_EQ(loader.Take(GetPass(0))->input[0][0].item<float>(), 0);
  EXPECT_EQ(numbers->fetched(), (std::vector<int64_t>{0, 0, 10, 20, 50}));
}

TEST(BatchLoaderTest, TakeReturnsTheErrorOrThrowsTheExceptionOfItsBatch) {
  BatchLoader loader(std::make_shared<Numbers>(), nullptr, /*threads=*/2);
  loader.Expect({GetPass(66), GetPass(77), GetPass(1)});
  EXPECT_EQ(loader.Take(GetPass(66)).status(), absl::DataLossError("sample 66 is broken"));
  EXPECT_THROW(loader.Take(GetPass(77)).IgnoreError(), std::runtime_error);
  EXPECT_TRUE(loader.Take(GetPass(1)).ok()) << "the loader threads continue";
}

}  // namespace
}  // namespace torchps
