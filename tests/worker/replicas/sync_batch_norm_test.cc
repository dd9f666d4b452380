// Compares SyncBatchNorm over replicas with torch's batch norm of the whole batch.

#include "torchps/worker/replicas/sync_batch_norm.h"

#include <ATen/Parallel.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/worker/feed/batch_loader.h"
#include "torchps/worker/replicas/host_group.h"
#include "torchps/worker/replicas/thread_all_reduce.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 20;
constexpr double kTolerance = 1e-5;

class MeetingSums final : public BatchSums {
 public:
  MeetingSums(ThreadAllReduce* meeting, size_t replica, size_t replicas)
      : meeting_(meeting), replica_(replica), replicas_(replicas) {}
  absl::Status Add(const torch::Tensor& tensor) override {
    return meeting_->SumToAll(replica_, replicas_, tensor);
  }

 private:
  ThreadAllReduce* const meeting_;
  const size_t replica_;
  const size_t replicas_;
};

double Difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// The result of one training pass with the loss sum(output * weights).
struct Outcome {
  torch::Tensor output, of_input;
};

template <typename Norm>
Outcome Train(Norm& norm, torch::Tensor input, const torch::Tensor& weights) {
  input = input.clone().set_requires_grad(true);
  const torch::Tensor output = norm->forward(input);
  (output * weights).sum().backward();
  return {output.detach(), input.grad()};
}

template <typename Norm, typename Whole>
void ExpectSame(size_t replicas, const torch::nn::BatchNormOptions& options,
                const std::vector<int64_t>& shape) {
  SCOPED_TRACE(testing::Message() << replicas << " replicas, input of " << shape.size()
                                  << " dimensions");
  torch::manual_seed(3);
  HostGroup group;
  ThreadAllReduce meeting(&group, replicas);
  Whole whole(options);
  std::vector<Norm> norms;
  std::vector<std::unique_ptr<MeetingSums>> sums;
  for (size_t i = 0; i < replicas; ++i) {
    norms.emplace_back(options);
    sums.push_back(std::make_unique<MeetingSums>(&meeting, i, replicas));
    norms[i]->UseSums(sums[i].get());
  }
  for (int step = 0; step < kSteps; ++step) {
    if (options.affine()) {
      const torch::NoGradGuard no_grad;
      const torch::Tensor weight = torch::rand_like(whole->weight) + 0.5;
      const torch::Tensor bias = torch::randn_like(whole->bias);
      const auto set = [&](auto& norm) {
        norm->weight.copy_(weight);
        norm->bias.copy_(bias);
        norm->zero_grad();
      };
      set(whole);
      for (Norm& norm : norms) set(norm);
    }
    // The inputs are far from zero, so that a difference of squares would lose digits.
    const torch::Tensor input = torch::randn(shape) * 2 + 30;
    const torch::Tensor weights = torch::randn(shape);
    const Outcome expected = Train(whole, input, weights);

    meeting.Begin();
    std::vector<Outcome> outcomes(replicas);
    std::vector<std::thread> threads;
    const auto samples = static_cast<size_t>(shape[0]);
    for (size_t i = 0; i < replicas; ++i) {
      const PartOfPass part = GetPart(samples, i, replicas);
      const auto begin = static_cast<int64_t>(part.begin);
      const auto size = static_cast<int64_t>(part.size);
      threads.emplace_back([&, i, begin, size] {
        at::set_num_threads(1);
        outcomes[i] = Train(norms[i], input.narrow(0, begin, size), weights.narrow(0, begin, size));
      });
    }
    for (std::thread& thread : threads) thread.join();

    std::vector<torch::Tensor> outputs, of_inputs;
    for (const Outcome& outcome : outcomes) {
      outputs.push_back(outcome.output);
      of_inputs.push_back(outcome.of_input);
    }
    EXPECT_LE(Difference(torch::cat(outputs), expected.output), 3 * kTolerance) << step;
    EXPECT_LE(Difference(torch::cat(of_inputs), expected.of_input), kTolerance) << step;
    if (options.affine()) {
      torch::Tensor of_weight = torch::zeros_like(whole->weight);
      torch::Tensor of_bias = torch::zeros_like(whole->bias);
      for (Norm& norm : norms) {
        of_weight += norm->weight.grad();
        of_bias += norm->bias.grad();
      }
      EXPECT_LE(Difference(of_weight, whole->weight.grad()) /
                    whole->weight.grad().abs().max().template item<double>(),
                kTolerance);
      EXPECT_LE(Difference(of_bias, whole->bias.grad()) /
                    whole->bias.grad().abs().max().template item<double>(),
                kTolerance);
    }
    if (!options.track_running_stats()) continue;
    for (Norm& norm : norms) {
      EXPECT_LE(Difference(norm->running_mean, whole->running_mean) / 30, kTolerance);
      EXPECT_LE(Difference(norm->running_var, whole->running_var) / 4, kTolerance);
      EXPECT_EQ(norm->num_batches_tracked.template item<int64_t>(), step + 1);
    }
  }
}

using Options = torch::nn::BatchNormOptions;

TEST(SyncBatchNormTest, MatchesTheBatchNormOfTheWholeBatch) {
  for (const size_t replicas : {1, 2, 3}) {
    ExpectSame<SyncBatchNorm2d, torch::nn::BatchNorm2d>(replicas, Options(4), {8, 4, 3, 5});
    ExpectSame<SyncBatchNorm1d, torch::nn::BatchNorm1d>(replicas, Options(4), {11, 4});
    ExpectSame<SyncBatchNorm1d, torch::nn::BatchNorm1d>(replicas, Options(4), {7, 4, 6});
    ExpectSame<SyncBatchNorm3d, torch::nn::BatchNorm3d>(replicas, Options(2), {6, 2, 3, 2, 2});
  }
}

TEST(SyncBatchNormTest, AcceptsTheOptionsOfTorchsBatchNorm) {
  ExpectSame<SyncBatchNorm2d, torch::nn::BatchNorm2d>(2, Options(4).affine(false), {8, 4, 3, 5});
  ExpectSame<SyncBatchNorm2d, torch::nn::BatchNorm2d>(2, Options(4).track_running_stats(false),
                                                      {8, 4, 3, 5});
  ExpectSame<SyncBatchNorm2d, torch::nn::BatchNorm2d>(2, Options(4).momentum(c10::nullopt),
                                                      {8, 4, 3, 5});
  ExpectSame<SyncBatchNorm2d, torch::nn::BatchNorm2d>(2, Options(4).eps(0.1).momentum(0.5),
                                                      {8, 4, 3, 5});
}

TEST(SyncBatchNormTest, WithoutOtherReplicasItMatchesTorchToTheBit) {
  torch::manual_seed(5);
  SyncBatchNorm2d sync(3);
  torch::nn::BatchNorm2d plain(3);
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor input = torch::randn({4, 3, 2, 2});
    const torch::Tensor weights = torch::randn({4, 3, 2, 2});
    const Outcome one = Train(sync, input, weights);
    const Outcome other = Train(plain, input, weights);
    EXPECT_TRUE(one.output.equal(other.output));
    EXPECT_TRUE(one.of_input.equal(other.of_input));
  }
  sync->eval();
  plain->eval();
  const torch::Tensor input = torch::randn({4, 3, 2, 2});
  EXPECT_TRUE(sync->forward(input).equal(plain->forward(input)));
  EXPECT_EQ(sync->named_parameters().keys(), plain->named_parameters().keys());
  EXPECT_EQ(sync->named_buffers().keys(), plain->named_buffers().keys());
}

// Autocast produces 16-bit inputs. Their statistics must equal those of the same numbers in 32
// bits.
TEST(SyncBatchNormTest, SumsA16BitInputIn32Bits) {
  torch::manual_seed(5);
  HostGroup group;
  ThreadAllReduce meeting(&group, 1);
  MeetingSums sums(&meeting, 0, 1);
  SyncBatchNorm2d norm(torch::nn::BatchNormOptions(3));
  norm->UseSums(&sums);
  SyncBatchNorm2d of_32(torch::nn::BatchNormOptions(3));
  of_32->UseSums(&sums);
  // The mean is large compared with the deviation, so that 16-bit sums would lose the deviation.
  const torch::Tensor input = (torch::randn({8, 3, 4, 4}) + 40).to(torch::kBFloat16);
  const torch::Tensor weights = torch::randn({8, 3, 4, 4});
  const Outcome narrow = Train(norm, input, weights);
  const Outcome wide = Train(of_32, input.to(torch::kFloat32), weights);
  EXPECT_EQ(narrow.output.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(narrow.of_input.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(torch::equal(narrow.output, wide.output.to(torch::kBFloat16)));
  EXPECT_TRUE(torch::equal(norm->running_mean, of_32->running_mean));
  EXPECT_TRUE(torch::equal(norm->running_var, of_32->running_var));
}

TEST(SyncBatchNormTest, AnEvaluationDoesNotCommunicate) {
  HostGroup group;
  ThreadAllReduce meeting(&group, 2);
  MeetingSums sums(&meeting, 0, 2);
  SyncBatchNorm1d norm(3);
  norm->UseSums(&sums);
  norm->eval();
  EXPECT_EQ(norm->forward(torch::ones({2, 3})).size(0), 2);
}

TEST(SyncBatchNormTest, RefusesAnInputOfOtherDimensions) {
  EXPECT_THROW(SyncBatchNorm2d(3)->forward(torch::ones({2, 3})), c10::Error);
  EXPECT_THROW(SyncBatchNorm1d(3)->forward(torch::ones({2, 3, 1, 1})), c10::Error);
}

TEST(SyncBatchNormTest, RefusesTorchsOwnBatchNormByName) {
  HostGroup group;
  ThreadAllReduce meeting(&group, 2);
  MeetingSums sums(&meeting, 0, 2);
  torch::nn::Sequential fits(SyncBatchNorm2d(2), SyncBatchNorm2d(2));
  EXPECT_TRUE(SynchronizeBatchNorms(*fits, &sums).ok());
  torch::nn::Sequential mixed(SyncBatchNorm2d(2), torch::nn::BatchNorm2d(2));
  const absl::Status status = SynchronizeBatchNorms(*mixed, &sums);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cannot synchronize '1': it is a "
                        "torch::nn::BatchNorm2dImpl; expected torchps::SyncBatchNorm"));
}

}  // namespace
}  // namespace torchps
