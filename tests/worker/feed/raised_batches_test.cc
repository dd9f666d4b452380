// Tests how BatchLoader uploads batches to a device whose copies end late.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/feed/fake_lift.h"
#include "torch/types.h"
#include "torchps/data/dataset.h"
#include "torchps/worker/feed/batch_loader.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

// Dataset whose sample i has the number i as its input and the class i. Reading sample 66 fails.
class NumbersAndClasses final : public Dataset {
 public:
  int64_t size() const override { return 100; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    if (indices[0] == 66) return absl::DataLossError("sample 66 is broken");
    const auto classes = torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()));
    return Batch{classes.to(torch::kFloat32), classes, {classes * 2}, {classes * 3}};
  }
};

BatchLoader::Pass PassFrom(int64_t first) {
  return {{first, first + 1}, static_cast<uint64_t>(first)};
}

void ExpectTheBatchOf(int64_t first, const absl::StatusOr<Batch>& batch) {
  ASSERT_TRUE(batch.ok()) << batch.status();
  const torch::Tensor classes = torch::tensor(std::vector<int64_t>{first, first + 1});
  EXPECT_TRUE(torch::equal(batch->input, classes.to(torch::kFloat32))) << batch->input;
  EXPECT_TRUE(torch::equal(batch->target, classes)) << batch->target;
  EXPECT_TRUE(torch::equal(batch->more_inputs.at(0), classes * 2));
  EXPECT_TRUE(torch::equal(batch->more_targets.at(0), classes * 3));
}

TEST(RaisedBatchesTest, UploadsTheNextBatchDuringComputation) {
  FakeLift::Counts counts;
  FakeLift lift({/*seed=*/1, /*fail_at=*/-1, &counts});
  BatchLoader loader(std::make_shared<NumbersAndClasses>(), nullptr, /*threads=*/1, &lift);
  loader.Expect({PassFrom(0), PassFrom(10)});
  ExpectTheBatchOf(0, loader.Take(PassFrom(0)));
  // By now a loader thread or Take() begins the upload of the next batch.
  lift.AwaitBegun(2);
  EXPECT_EQ(counts.arrived, 1);
  loader.Expect({PassFrom(10), PassFrom(20)});
  ExpectTheBatchOf(10, loader.Take(PassFrom(10)));
  lift.AwaitBegun(3);
  EXPECT_EQ(counts.arrived, 2);
}

TEST(RaisedBatchesTest, UploadsEachBatchOnceAndOneAhead) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FakeLift::Counts counts;
    FakeLift lift({seed, /*fail_at=*/-1, &counts});
    const int threads = static_cast<int>(seed % 4);
    BatchLoader loader(std::make_shared<NumbersAndClasses>(), nullptr, threads, &lift);
    for (int64_t first = 0; first < 20; first += 2) {
      std::vector<BatchLoader::Pass> expected;
      for (int64_t next = first; next < 20 && expected.size() <= loader.ahead(); next += 2) {
        expected.push_back(PassFrom(next));
      }
      if (threads > 0) loader.Expect(std::move(expected));
      ExpectTheBatchOf(first, loader.Take(PassFrom(first)));
      lift.EndPass();
    }
    EXPECT_EQ(counts.begun, 10);
    EXPECT_EQ(counts.arrived, 10);
    EXPECT_LE(counts.max_rising, threads == 0 ? 1 : 2);
  }
}

TEST(RaisedBatchesTest, DropsABatchNoLongerExpectedDuringItsUpload) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FakeLift::Counts counts;
    FakeLift lift({seed, /*fail_at=*/-1, &counts});
    BatchLoader loader(std::make_shared<NumbersAndClasses>(), nullptr, /*threads=*/2, &lift);
    loader.Expect({PassFrom(0), PassFrom(10)});
    lift.AwaitBegun(1);
    loader.Expect({PassFrom(20), PassFrom(30)});
    ExpectTheBatchOf(20, loader.Take(PassFrom(20)));
    ExpectTheBatchOf(50, loader.Take(PassFrom(50)));
    ExpectTheBatchOf(30, loader.Take(PassFrom(30)));
    ExpectTheBatchOf(0, loader.Take(PassFrom(0)));
  }
}

TEST(RaisedBatchesTest, ReturnsAnErrorForTheFailingPass) {
  for (const int threads : {0, 1, 2}) {
    SCOPED_TRACE("threads " + std::to_string(threads));
    FakeLift::Counts counts;
    FakeLift lift({/*seed=*/1, /*fail_at=*/1, &counts});
    BatchLoader loader(std::make_shared<NumbersAndClasses>(), nullptr, threads, &lift);
    if (threads > 0) loader.Expect({PassFrom(0), PassFrom(10), PassFrom(66), PassFrom(20)});
    ExpectTheBatchOf(0, loader.Take(PassFrom(0)));
    try {
      loader.Take(PassFrom(10)).IgnoreError();
      ADD_FAILURE() << "the copy has failed";
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("copy 1 has failed"));
    }
    EXPECT_EQ(loader.Take(PassFrom(66)).status(), absl::DataLossError("sample 66 is broken"));
    ExpectTheBatchOf(20, loader.Take(PassFrom(20)));
  }
}

}  // namespace
}  // namespace torchps
