#include "torchps/server/coordinator/evaluations.h"

#include <vector>

#include "gtest/gtest.h"

namespace torchps {
namespace {

constexpr SlotId kAnnaSlot = 0;
constexpr SlotId kBertSlot = 1;

EvaluationResult Accuracy(int epoch, double accuracy) {
  EvaluationResult result;
  result.set_epoch(epoch);
  result.add_metric()->set_name("accuracy");
  result.mutable_metric(0)->set_value(accuracy);
  return result;
}

std::vector<int> ReportedEpochs(const Evaluations& evaluations) {
  JobStatus status;
  evaluations.AddResultsTo(&status);
  std::vector<int> epochs;
  for (const EvaluationResult& result : status.evaluation()) epochs.push_back(result.epoch());
  return epochs;
}

TEST(EvaluationsTest, TheSlotThatClosesAnEpochEvaluatesIt) {
  Evaluations evaluations;
  evaluations.Open(1, kAnnaSlot);
  EXPECT_EQ(evaluations.TakeFor(kBertSlot), 0);
  EXPECT_EQ(evaluations.TakeFor(kAnnaSlot), 1);
  EXPECT_EQ(evaluations.TakeFor(kAnnaSlot), 1) << "assigned to anna until she reports";
}

TEST(EvaluationsTest, ReassignsUnreportedEpochsOfADeadSlot) {
  Evaluations evaluations;
  evaluations.Open(1, kAnnaSlot);
  evaluations.Open(2, kAnnaSlot);
  evaluations.Report(1, Accuracy(1, 0.5));
  evaluations.Release(kAnnaSlot);
  EXPECT_EQ(evaluations.TakeFor(kBertSlot), 2);
  EXPECT_EQ(evaluations.TakeFor(kAnnaSlot), 0) << "assigned to bert now";
}

TEST(EvaluationsTest, AcceptsOneReportPerEpoch) {
  Evaluations evaluations;
  evaluations.Open(1, kAnnaSlot);
  EXPECT_FALSE(evaluations.WasReportedBy(kAnnaSlot, 1));
  EXPECT_FALSE(evaluations.AllReported());
  evaluations.Report(evaluations.TakeFor(kAnnaSlot), Accuracy(1, 0.5));
  EXPECT_TRUE(evaluations.WasReportedBy(kAnnaSlot, 1));
  EXPECT_FALSE(evaluations.WasReportedBy(kBertSlot, 1));
  EXPECT_FALSE(evaluations.WasReportedBy(kAnnaSlot, 2)) << "never opened";
  EXPECT_TRUE(evaluations.AllReported());
  EXPECT_EQ(ReportedEpochs(evaluations), (std::vector<int>{1}));
}

TEST(EvaluationsTest, RestoresTheSavedState) {
  Evaluations before;
  before.Open(1, kAnnaSlot);
  before.Report(1, Accuracy(1, 0.5));
  before.Open(2, kBertSlot);
  before.Open(3, kAnnaSlot);
  before.Release(kAnnaSlot);
  CoordinatorState state;
  before.SaveTo(&state);

  Evaluations after;
  for (const EvaluationState& saved : state.evaluation()) after.Restore(saved);
  EXPECT_TRUE(after.WasReportedBy(kAnnaSlot, 1));
  EXPECT_EQ(ReportedEpochs(after), (std::vector<int>{1}));
  EXPECT_TRUE(after.has(3));
  EXPECT_FALSE(after.has(4));
  EXPECT_EQ(after.TakeFor(kAnnaSlot), 3);
  EXPECT_EQ(after.TakeFor(kBertSlot), 2);
}

}  // namespace
}  // namespace torchps
