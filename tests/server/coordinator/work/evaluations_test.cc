#include "server/coordinator/evaluations.h"

#include <vector>

#include "gtest/gtest.h"

namespace torchps {
namespace {

constexpr SlotId kAnna = 0;
constexpr SlotId kBert = 1;

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
  evaluations.Open(1, kAnna);
  EXPECT_EQ(evaluations.TakeFor(kBert), 0);
  EXPECT_EQ(evaluations.TakeFor(kAnna), 1);
  EXPECT_EQ(evaluations.TakeFor(kAnna), 1) << "assigned to anna until she reports";
}

TEST(EvaluationsTest, ReassignsUnreportedEpochsOfADeadSlot) {
  Evaluations evaluations;
  evaluations.Open(1, kAnna);
  evaluations.Open(2, kAnna);
  evaluations.Report(1, Accuracy(1, 0.5));
  evaluations.Release(kAnna);
  EXPECT_EQ(evaluations.TakeFor(kBert), 2);
  EXPECT_EQ(evaluations.TakeFor(kAnna), 0) << "assigned to bert now";
}

TEST(EvaluationsTest, AcceptsOneReportPerEpoch) {
  Evaluations evaluations;
  evaluations.Open(1, kAnna);
  EXPECT_FALSE(evaluations.WasReportedBy(kAnna, 1));
  EXPECT_FALSE(evaluations.AllReported());
  evaluations.Report(evaluations.TakeFor(kAnna), Accuracy(1, 0.5));
  EXPECT_TRUE(evaluations.WasReportedBy(kAnna, 1));
  EXPECT_FALSE(evaluations.WasReportedBy(kBert, 1));
  EXPECT_FALSE(evaluations.WasReportedBy(kAnna, 2)) << "never opened";
  EXPECT_TRUE(evaluations.AllReported());
  EXPECT_EQ(ReportedEpochs(evaluations), (std::vector<int>{1}));
}

TEST(EvaluationsTest, RestoresTheSavedState) {
  Evaluations before;
  before.Open(1, kAnna);
  before.Report(1, Accuracy(1, 0.5));
  before.Open(2, kBert);
  before.Open(3, kAnna);
  before.Release(kAnna);
  CoordinatorState state;
  before.SaveTo(&state);

  Evaluations after;
  for (const EvaluationState& saved : state.evaluation()) after.Restore(saved);
  EXPECT_TRUE(after.WasReportedBy(kAnna, 1));
  EXPECT_EQ(ReportedEpochs(after), (std::vector<int>{1}));
  EXPECT_TRUE(after.has(3));
  EXPECT_FALSE(after.has(4));
  EXPECT_EQ(after.TakeFor(kAnna), 3);
  EXPECT_EQ(after.TakeFor(kBert), 2);
}

}  // namespace
}  // namespace torchps
