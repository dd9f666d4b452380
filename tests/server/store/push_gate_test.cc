#include "torchps/server/store/push_gate.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

PushGate MakeGate(LagContract::Policy policy, int64_t free_lag, int64_t max_lag) {
  LagContract contract;
  contract.set_policy(policy);
  contract.set_free_lag(free_lag);
  contract.set_max_lag(max_lag);
  return PushGate(contract);
}

TEST(PushGateTest, AcceptPolicyAppliesPushesAtAnyLag) {
  const PushGate gate = MakeGate(LagContract::ACCEPT, 1, 1);
  const auto decision = gate.Judge({}, 1, 1, 0, 1000);
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->verdict, ACCEPTED);
  EXPECT_TRUE(decision->apply);
  EXPECT_EQ(decision->lag, 1000);
  EXPECT_EQ(decision->rate_factor, 1.0);
  EXPECT_EQ(decision->gradient_factor, 1.0);
}

TEST(PushGateTest, WeighScalesTheGradientDownByLag) {
  for (int64_t free_lag = 1; free_lag <= 8; ++free_lag) {
    const PushGate gate = MakeGate(LagContract::WEIGH, free_lag, 0);
    for (int64_t lag = 0; lag <= 64; ++lag) {
      const auto decision = gate.Judge({}, 1, 1, 100, 100 + lag);
      ASSERT_TRUE(decision.ok());
      const double stated = 1.0 / std::max(1.0, static_cast<double>(lag) / free_lag);
      EXPECT_DOUBLE_EQ(decision->gradient_factor, stated) << "lag " << lag << ", free " << free_lag;
      EXPECT_EQ(decision->rate_factor, 1.0);
      EXPECT_TRUE(decision->apply);
      EXPECT_EQ(decision->verdict, lag > free_lag ? SCALED : ACCEPTED);
    }
  }
}

TEST(PushGateTest, RejectAppliesUpToMaxLag) {
  const PushGate gate = MakeGate(LagContract::REJECT, 0, 5);
  EXPECT_EQ(gate.Judge({}, 1, 1, 10, 15)->verdict, ACCEPTED);
  const auto decision = gate.Judge({}, 1, 1, 10, 16);
  EXPECT_EQ(decision->verdict, REJECTED_STALE);
  EXPECT_FALSE(decision->apply);
}

TEST(PushGateTest, RejectKeepsRejectingAboveMaxLag) {
  const PushGate gate = MakeGate(LagContract::REJECT, 0, 4);
  LedgerEntry entry;
  for (Step step = 1; step <= 100; ++step) {
    const auto decision = gate.Judge(entry, 1, step, 0, 5);
    ASSERT_EQ(decision->verdict, REJECTED_STALE) << step;
    ASSERT_FALSE(decision->apply);
    PushGate::Record(*decision, 1, step, &entry);
  }
  EXPECT_EQ(gate.Judge(entry, 1, 101, 1, 5)->verdict, ACCEPTED);
}

TEST(PushGateTest, RejectWithAMaxLagOfZeroAcceptsTheCurrentVersion) {
  const PushGate gate = MakeGate(LagContract::REJECT, 0, 0);
  EXPECT_EQ(gate.Judge({}, 1, 1, 7, 7)->verdict, ACCEPTED);
  EXPECT_EQ(gate.Judge({}, 1, 1, 6, 7)->verdict, REJECTED_STALE);
}

TEST(PushGateTest, ARepeatedStepGetsItsFirstVerdict) {
  const PushGate gate = MakeGate(LagContract::REJECT, 0, 1);
  LedgerEntry entry;
  PushGate::Record(*gate.Judge(entry, 1, 1, 0, 9), 1, 1, &entry);
  // Pushes computed on the current version are accepted, but this step has a verdict already.
  const auto repeat = gate.Judge(entry, 1, 1, 9, 9);
  EXPECT_TRUE(repeat->duplicate);
  EXPECT_FALSE(repeat->apply);
  EXPECT_EQ(repeat->verdict, REJECTED_STALE);
  EXPECT_EQ(repeat->lag, 9);
}

TEST(PushGateTest, RejectsInvalidStepsAndVersions) {
  const PushGate gate = MakeGate(LagContract::ACCEPT, 0, 0);
  EXPECT_EQ(gate.Judge({}, 1, 0, 0, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(gate.Judge({}, 1, 1, 5, 4).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(gate.Judge({}, 1, 1, -1, 4).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PushGateTest, APushBasedOnARolledBackVersionHasLagZero) {
  PushGate gate = MakeGate(LagContract::REJECT, 0, 2);
  gate.AllowRolledBack();
  const auto decision = gate.Judge({}, 1, 1, 5, 4);
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_EQ(decision->verdict, ACCEPTED);
  EXPECT_EQ(decision->lag, 0);
  EXPECT_EQ(gate.Judge({}, 1, 1, 1, 4)->verdict, REJECTED_STALE);
  EXPECT_EQ(gate.Judge({}, 1, 1, -1, 4).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PushGateTest, ALaterIncarnationsPushIsNew) {
  const PushGate gate = MakeGate(LagContract::ACCEPT, 1, 1);
  LedgerEntry entry;
  PushGate::Record(*gate.Judge(entry, /*incarnation=*/5, /*step=*/8, 0, 0), 5, 8, &entry);
  entry.acknowledged_step = 8;
  for (const Step step : {3, 8, 9}) {
    const auto decision = gate.Judge(entry, /*incarnation=*/7, step, 0, 1);
    ASSERT_TRUE(decision.ok()) << decision.status();
    EXPECT_FALSE(decision->duplicate) << step;
    EXPECT_TRUE(decision->apply) << step;
  }
  PushGate::Record(*gate.Judge(entry, 7, 3, 0, 1), 7, 3, &entry);
  EXPECT_TRUE(gate.Judge(entry, 7, 3, 0, 2)->duplicate);
  EXPECT_FALSE(gate.Judge(entry, 7, 4, 0, 2)->duplicate) << "step 8 was another process's";
  EXPECT_EQ(entry.acknowledged_step, 0) << "this process received no acknowledgement";
  EXPECT_EQ(entry.applied, 2u) << "per slot, not per process";
}

TEST(PushGateTest, RejectsAnEarlierIncarnation) {
  const PushGate gate = MakeGate(LagContract::ACCEPT, 1, 1);
  LedgerEntry entry;
  PushGate::Record(*gate.Judge(entry, /*incarnation=*/7, /*step=*/8, 0, 0), 7, 8, &entry);
  for (const Step step : {8, 9}) {
    const auto status = gate.Judge(entry, /*incarnation=*/5, step, 0, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << step;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("incarnation 7"));
  }
}

}  // namespace
}  // namespace torchps
