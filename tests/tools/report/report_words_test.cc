#include <gtest/gtest.h>

#include "torchps/tools/report/report_text.h"

namespace torchps {
namespace {

TEST(PhrasesTest, DescribesTheConsistencyAndItsBounds) {
  ConsistencySpec spec;
  spec.set_mode(ConsistencySpec::SYNC);
  EXPECT_EQ(DescribeConsistency(spec), "synchronous");
  spec.set_backup_workers(1);
  EXPECT_EQ(DescribeConsistency(spec), "synchronous, 1 backup worker");
  spec.set_mode(ConsistencySpec::ASYNC);
  spec.set_staleness_bound(4);
  EXPECT_EQ(DescribeConsistency(spec), "asynchronous, each push alone, at most 4 steps ahead");
  spec.set_staleness_bound(-1);
  spec.mutable_lag()->set_policy(LagContract::REJECT);
  spec.mutable_lag()->set_max_lag(8);
  EXPECT_EQ(DescribeConsistency(spec),
            "asynchronous, each push alone, no staleness bound, rejected beyond lag 8");
}

TEST(PhrasesTest, DescribesWholeBatchesWithABoundInUpdates) {
  ConsistencySpec spec;
  spec.set_mode(ConsistencySpec::ASYNC);
  spec.set_apply(ConsistencySpec::WHOLE_BATCH);
  spec.set_staleness_bound(1);
  EXPECT_EQ(DescribeConsistency(spec), "asynchronous, staleness at most 1 update");
  spec.set_staleness_bound(0);
  EXPECT_EQ(DescribeConsistency(spec), "asynchronous, staleness at most 0 updates");
  spec.set_staleness_bound(-1);
  EXPECT_EQ(DescribeConsistency(spec), "asynchronous by whole batches, no staleness bound");
}

TEST(PhrasesTest, WritesStatesAndPhasesInLowerCase) {
  EXPECT_EQ(StateName(SlotAccounting::FINISHED), "finished");
  EXPECT_EQ(PhaseName(JobStatus::GATHERING), "gathering");
  EXPECT_EQ(StateAndReason("left", ""), "left");
  EXPECT_EQ(StateAndReason("left", "sent away"), "left: sent away");
}

TEST(PhrasesTest, ShowsASlotsDeviceOrItsNumberOfDevices) {
  Members members;
  EXPECT_EQ(DeviceText("cuda:0", members), "cuda:0");
  members.Add()->set_device("cpu");
  EXPECT_EQ(DeviceText("cpu", members), "cpu");
  members.Add()->set_device("cpu");
  EXPECT_EQ(DeviceText("cpu,cpu", members), "2 devices");
  for (ReplicaMember& member : members) member.set_own_process(true);
  EXPECT_EQ(DeviceText("cpu,cpu", members), "2 processes");
}

TEST(PhrasesTest, ShowsASingleVersionAsANumberNotARange) {
  EXPECT_EQ(VersionRange(376, 376), "376");
  EXPECT_EQ(VersionRange(370, 376), "370-376");
}

TEST(PhrasesTest, ReportsANonFiniteModelWithAdvice) {
  EXPECT_EQ(NotFiniteText(0, /*has_checkpoint=*/true), "");
  EXPECT_EQ(NotFiniteText(3, /*has_checkpoint=*/false),
            "the model is not finite: 3 blocks hold infinite or NaN values; restart the job "
            "with a smaller optimizer.learning_rate or with training.clip_norm\n");
}

TEST(PhrasesTest, ShowsWhyAJobStoppedAndResumed) {
  EXPECT_EQ(StoppedAndResumed("", 0), "");
  EXPECT_EQ(StoppedAndResumed("slot 1: a reason", 3),
            "stopped early: slot 1: a reason\nresumed from checkpoint 3\n");
}

}  // namespace
}  // namespace torchps
