#include "torchps/data/tensor_dataset.h"

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>

#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(TensorDatasetTest, ReturnsTheRequestedRows) {
  const torch::Tensor input = torch::arange(10).view({5, 2});
  const TensorDataset data(input, torch::arange(5), {input * 10}, {input * 100});
  EXPECT_EQ(data.size(), 5);
  const Batch batch = *data.Get({4, 0});
  EXPECT_TRUE(batch.input.equal(torch::tensor({{8, 9}, {0, 1}}, torch::kInt64)));
  EXPECT_TRUE(batch.target.equal(torch::tensor({4, 0}, torch::kInt64)));
  EXPECT_TRUE(batch.more_inputs.at(0).equal(batch.input * 10));
  EXPECT_TRUE(batch.more_targets.at(0).equal(batch.input * 100));
}

// The fingerprint ignores the values of floats, because their last bits may differ between
// machines.
TEST(TensorDatasetTest, FingerprintDependsOnIntegersAndShapes) {
  const torch::Tensor input = torch::rand({50, 3});
  const torch::Tensor target = torch::arange(50) % 3;
  const auto of = [](const torch::Tensor& input, const torch::Tensor& target) {
    return TensorDataset(input, target).Fingerprint();
  };
  const uint32_t here = of(input, target);
  EXPECT_NE(here, 0u);
  EXPECT_EQ(of(input * 1.0000001, target), here);
  EXPECT_NE(of(input, target.flip(0)), here);
  EXPECT_NE(of(torch::rand({50, 4}), target), here);
  EXPECT_NE(of(input.slice(0, 0, 49), target.slice(0, 0, 49)), here);
  EXPECT_NE(TensorDataset(torch::zeros({1, 1}), {}).Fingerprint(), 0u);
}

TEST(TensorDatasetTest, ABatchHasNoTargetIfTheDatasetHasNone) {
  EXPECT_FALSE(TensorDataset(torch::zeros({3, 1}), {}).Get({1})->target.defined());
}

// Returns the square of the index.
struct Squares : torch::data::datasets::Dataset<Squares> {
  torch::data::Example<> get(size_t index) override {
    const auto x = static_cast<float>(index);
    return {torch::full({2}, x), torch::full({1}, x * x)};
  }
  torch::optional<size_t> size() const override { return 7; }
};

TEST(TensorDatasetTest, ReturnsTheSamplesOfAWrappedTorchDataset) {
  const std::shared_ptr<const Dataset> data = FromTorchData(Squares());
  EXPECT_EQ(data->size(), 7);
  const Batch batch = *data->Get({3, 5});
  EXPECT_TRUE(batch.input.equal(torch::tensor({{3.0f, 3.0f}, {5.0f, 5.0f}})));
  EXPECT_TRUE(batch.target.equal(torch::tensor({{9.0f}, {25.0f}})));
}

}  // namespace
}  // namespace torchps
