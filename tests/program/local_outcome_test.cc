#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "torchps/program/local_run.h"

namespace torchps {
namespace {

std::string GetText(const std::string& status) {
  JobStatus job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(status, &job));
  return OutcomeText(job);
}

TEST(LocalOutcomeTest, ReportsTheResultAndTheDuration) {
  EXPECT_EQ(GetText("phase: DONE job { name: 'digits' } running_seconds: 3.25 "
                    "epoch { epoch: 1 closed: true } epoch { epoch: 2 closed: true } "
                    "evaluation { epoch: 1 samples: 100 loss: 0.5 } "
                    "evaluation { epoch: 2 samples: 100 loss: 0.4018 "
                    "metric { name: 'accuracy' value: 0.872 } metric { name: 'f1' value: 0.8 } }"),
            "digits finished after 2 epochs in 3.2 s: test loss 0.4018, accuracy 0.872, f1 0.8");
}

TEST(LocalOutcomeTest, OmitsFiguresThatWereNotMeasured) {
  EXPECT_EQ(GetText("phase: DONE job { name: 'x' } running_seconds: 1 "
                    "epoch { epoch: 1 closed: true } evaluation { epoch: 1 }"),
            "x finished after 1 epoch in 1.0 s");
}

TEST(LocalOutcomeTest, AnInterruptedJobIsNotReportedAsFinished) {
  EXPECT_EQ(GetText("phase: RUNNING job { name: 'x' } running_seconds: 1 epoch { epoch: 1 }"),
            "x has not finished after 0 epochs in 1.0 s");
}

}  // namespace
}  // namespace torchps
