#include <gtest/gtest.h>

#include "torchps/tools/run/progress_view.h"

namespace torchps {
namespace {

TEST(WorkerTextTest, DescribesWorkerMessages) {
  EXPECT_EQ(ProgressText(*ParseStatusLine("torchps_worker progress slot=2 epoch=1 step=8 "
                                          "loss=0.4 accuracy=- samples_per_s=1000 wait_share=0.25"),
                         3),
            "epoch 1/3   step      8   loss 0.4000      1,000 samples/s   waiting  25 %");
  EXPECT_EQ(EvaluationText(*ParseStatusLine("torchps_worker evaluation slot=2 epoch=1 loss=0.21 "
                                            "accuracy=0.935 samples=1000"),
                           3),
            "epoch 1/3   test accuracy 93.50 %   test loss 0.2100   on 1,000 samples");
}

TEST(WorkerTextTest, ShowsANonFiniteLoss) {
  EXPECT_EQ(ProgressText(*ParseStatusLine("torchps_worker progress epoch=1 step=8 loss=-nan"), 3),
            "epoch 1/3   step      8   loss nan");
  EXPECT_EQ(
      EvaluationText(*ParseStatusLine("torchps_worker evaluation epoch=1 loss=inf samples=9"), 3),
      "epoch 1/3   test loss inf   on 9 samples");
  EXPECT_EQ(ProgressText(*ParseStatusLine("torchps_worker progress epoch=1 step=8 loss=-"), 3),
            "epoch 1/3   step      8");
}

}  // namespace
}  // namespace torchps
