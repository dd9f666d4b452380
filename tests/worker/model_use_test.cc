#include "worker/model_use.h"

#include <torch/nn/modules/linear.h>

#include "absl/status/status.h"
#include "common/stop_latch.h"
#include "data/tensor_dataset.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"
#include "torch/types.h"
#include "worker/objective.h"
#include "worker/task.h"

namespace torchps {
namespace {

// Enough samples for several batches.
class ModelUseTest : public ::testing::Test {
 protected:
  const TensorDataset samples_{torch::randn({2000, 4}), torch::randint(4, {2000})};
  const Task task_{torch::nn::Linear(4, 4), CrossEntropy(), DataSource()};
  StopLatch stop_;
};

TEST_F(ModelUseTest, AnEvaluationThatIsStoppedHasNoResult) {
  EXPECT_TRUE(Evaluate(task_, &samples_, torch::kCPU, TrainingSpec::FLOAT32, &stop_).ok());
  stop_.Stop("interrupted");
  const auto evaluation = Evaluate(task_, &samples_, torch::kCPU, TrainingSpec::FLOAT32, &stop_);
  EXPECT_EQ(evaluation.status(), absl::CancelledError("interrupted"));
}

TEST_F(ModelUseTest, APredictionThatIsStoppedEndsBehindItsBatch) {
  int batches = 0;
  const auto sink = [&](const Batch&, const torch::Tensor&) {
    ++batches;
    stop_.Stop("interrupted");
    return absl::OkStatus();
  };
  EXPECT_EQ(Predict(task_, samples_, torch::kCPU, TrainingSpec::FLOAT32, sink, &stop_),
            absl::CancelledError("interrupted"));
  EXPECT_EQ(batches, 1);
}

}  // namespace
}  // namespace torchps
