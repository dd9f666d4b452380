#include "server/store/push_gate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/split_mix64.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

PushGate MakeGate(LagContract::Policy policy, int64_t free_lag, int64_t max_lag,
                  int admit_after = 3) {
  LagContract contract;
  contract.set_policy(policy);
  contract.set_free_lag(free_lag);
  contract.set_max_lag(max_lag);
  contract.set_admit_after(admit_after);
  return PushGate(contract);
}

TEST(PushGateTest, AcceptAppliesWhateverTheLag) {
  const PushGate gate = MakeGate(LagContract::ACCEPT, 1, 1);
  const auto decision = gate.Judge({}, 1, 1, 0, 1000);
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->verdict, ACCEPTED);
  EXPECT_TRUE(decision->apply);
  EXPECT_EQ(decision->lag, 1000);
  EXPECT_DOUBLE_EQ(decision->rate_factor, 1.0);
}

TEST(PushGateTest, ScaleDividesTheRateByLagOverFreeLagAndNeverRaisesIt) {
  for (int64_t free_lag = 1; free_lag <= 8; ++free_lag) {
    const PushGate gate = MakeGate(LagContract::SCALE, free_lag, 0);
    for (int64_t lag = 0; lag <= 64; ++lag) {
      const auto decision = gate.Judge({}, 1, 1, 100, 100 + lag);
      ASSERT_TRUE(decision.ok());
      const double stated = 1.0 / std::max(1.0, static_cast<double>(lag) / free_lag);
      EXPECT_DOUBLE_EQ(decision->rate_factor, stated) << "lag " << lag << ", free " << free_lag;
      EXPECT_TRUE(decision->apply);
      EXPECT_EQ(decision->verdict, lag > free_lag ? SCALED : ACCEPTED);
    }
  }
}

TEST(PushGateTest, RejectAppliesUpToMaxLagAndNotOneAbove) {
  const PushGate gate = MakeGate(LagContract::REJECT, 0, 5);
  EXPECT_EQ(gate.Judge({}, 1, 1, 10, 15)->verdict, ACCEPTED);
  const auto decision = gate.Judge({}, 1, 1, 10, 16);
  EXPECT_EQ(decision->verdict, REJECTED_STALE);
  EXPECT_FALSE(decision->apply);
}

TEST(PushGateTest, AStragglerIsAdmittedAfterThreeRejectionsInARow) {
  const PushGate gate = MakeGate(LagContract::REJECT, 0, 4);
  LedgerEntry entry;
  for (Step step = 1; step <= 3; ++step) {
    const auto decision = gate.Judge(entry, 1, step, 0, 8);
    ASSERT_EQ(decision->verdict, REJECTED_STALE) << step;
    PushGate::Record(*decision, 1, step, &entry);
  }
  const auto decision = gate.Judge(entry, 1, 4, 0, 8);
  EXPECT_EQ(decision->verdict, ADMITTED);
  EXPECT_TRUE(decision->apply);
  EXPECT_DOUBLE_EQ(decision->rate_factor, 0.5);
  PushGate::Record(*decision, 1, 4, &entry);
  EXPECT_EQ(gate.Judge(entry, 1, 5, 0, 8)->verdict, REJECTED_STALE) << "the count begins anew";
}

TEST(PushGateTest, WeighScalesTheGradientWhereScaleScalesTheRate) {
  for (const bool weighs : {true, false}) {
    const PushGate gate = MakeGate(weighs ? LagContract::WEIGH : LagContract::SCALE, 2, 0);
    EXPECT_EQ(gate.Judge({}, 1, 1, 6, 8)->verdict, ACCEPTED);
    EXPECT_EQ(gate.Judge({}, 1, 1, 6, 8)->gradient_factor, 1);
    const auto decision = gate.Judge({}, 1, 1, 0, 8);
    EXPECT_EQ(decision->verdict, SCALED);
    EXPECT_TRUE(decision->apply);
    EXPECT_EQ(decision->gradient_factor, weighs ? 0.25 : 1);
    EXPECT_EQ(decision->rate_factor, weighs ? 1 : 0.25);
  }
}

TEST(PushGateTest, DecayTakesLessOfAGradientWithEachVersionBeyondFreeLag) {
  LagContract contract;
  contract.set_policy(LagContract::DECAY);
  contract.set_free_lag(2);
  contract.set_age_decay(0.25);
  const PushGate gate(contract);
  for (int64_t lag = 0; lag <= 64; ++lag) {
    const auto decision = gate.Judge({}, 1, 1, 100, 100 + lag);
    EXPECT_EQ(decision->verdict, lag <= 2 ? ACCEPTED : SCALED);
    EXPECT_TRUE(decision->apply);
    EXPECT_EQ(decision->rate_factor, 1);
    EXPECT_NEAR(decision->gradient_factor *
                    std::exp(0.25 * static_cast<double>(std::max<int64_t>(lag, 2) - 2)),
                1, 1e-12);
  }
}

TEST(PushGateTest, DecayLeavesNothingOfWhatIsOldEnough) {
  LagContract contract;
  contract.set_policy(LagContract::DECAY);
  contract.set_free_lag(1);
  contract.set_age_decay(100);
  const auto decision = PushGate(contract).Judge({}, 1, 1, 0, 1000);
  EXPECT_EQ(decision->verdict, SCALED);
  EXPECT_TRUE(decision->apply);
  EXPECT_EQ(decision->gradient_factor, 0);
}

TEST(PushGateTest, WithoutAdmissionNothingAboveMaxLagIsEverApplied) {
  const PushGate gate = MakeGate(LagContract::REJECT, 0, 4, /*admit_after=*/0);
  LedgerEntry entry;
  for (Step step = 1; step <= 100; ++step) {
    const auto decision = gate.Judge(entry, 1, step, 0, 5);
    ASSERT_EQ(decision->verdict, REJECTED_STALE) << step;
    ASSERT_FALSE(decision->apply);
    PushGate::Record(*decision, 1, step, &entry);
  }
  EXPECT_EQ(gate.Judge(entry, 1, 101, 1, 5)->verdict, ACCEPTED);
}

TEST(PushGateTest, AFreshPushEndsARowOfRejections) {
  const PushGate gate = MakeGate(LagContract::REJECT, 0, 4);
  LedgerEntry entry;
  for (Step step = 1; step <= 2; ++step) {
    PushGate::Record(*gate.Judge(entry, 1, step, 0, 8), 1, step, &entry);
  }
  PushGate::Record(*gate.Judge(entry, 1, 3, 8, 8), 1, 3, &entry);
  EXPECT_EQ(entry.rejections_in_row, 0);
}

TEST(PushGateTest, ARepeatedStepGetsItsFirstVerdictAndChangesNothing) {
  const PushGate gate = MakeGate(LagContract::REJECT, 0, 1);
  LedgerEntry entry;
  PushGate::Record(*gate.Judge(entry, 1, 1, 0, 9), 1, 1, &entry);
  // The same push computed on the present version would be fine: the name has had its verdict.
  const auto repeat = gate.Judge(entry, 1, 1, 9, 9);
  EXPECT_TRUE(repeat->duplicate);
  EXPECT_FALSE(repeat->apply);
  EXPECT_EQ(repeat->verdict, REJECTED_STALE);
  EXPECT_EQ(repeat->lag, 9);
}

TEST(PushGateTest, NamesThatCannotBeAreRefused) {
  const PushGate gate = MakeGate(LagContract::ACCEPT, 0, 0);
  EXPECT_EQ(gate.Judge({}, 1, 0, 0, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(gate.Judge({}, 1, 1, 5, 4).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(gate.Judge({}, 1, 1, -1, 4).status().code(), absl::StatusCode::kInvalidArgument);
}

// Random lags: what is applied above max_lag was admitted, and an admission follows exactly three
// rejections in a row; so nobody waits for more than three.
TEST(PushGateTest, UnderRejectNothingOldIsAppliedUnlessAdmittedAfterThree) {
  const uint64_t seed = 20261120;
  SCOPED_TRACE(seed);
  uint64_t random = seed;
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t max_lag = 1 + UniformBelow(random, 6);
    const PushGate gate = MakeGate(LagContract::REJECT, 0, max_lag);
    LedgerEntry entry;
    int in_row = 0;
    for (Step step = 1; step <= 200; ++step) {
      const int64_t lag = UniformBelow(random, 12);
      const auto decision = gate.Judge(entry, 1, step, 1000, 1000 + lag);
      ASSERT_TRUE(decision.ok());
      if (lag <= max_lag) {
        ASSERT_EQ(decision->verdict, ACCEPTED);
      } else {
        ASSERT_EQ(decision->verdict, in_row == 3 ? ADMITTED : REJECTED_STALE);
        ASSERT_EQ(decision->apply, in_row == 3);
      }
      in_row = decision->verdict == REJECTED_STALE ? in_row + 1 : 0;
      ASSERT_LE(in_row, 3);
      PushGate::Record(*decision, 1, step, &entry);
    }
  }
}

TEST(PushGateTest, ALaterIncarnationsPushIsNewWhateverItsStep) {
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
  EXPECT_EQ(entry.acknowledged_step, 0) << "nothing was acknowledged to this one";
  EXPECT_EQ(entry.applied, 2u) << "the slot's, whoever holds it";
}

TEST(PushGateTest, AnEarlierIncarnationIsRefusedWhateverItsStep) {
  const PushGate gate = MakeGate(LagContract::ACCEPT, 1, 1);
  LedgerEntry entry;
  PushGate::Record(*gate.Judge(entry, /*incarnation=*/7, /*step=*/8, 0, 0), 7, 8, &entry);
  for (const Step step : {8, 9}) {
    const auto status = gate.Judge(entry, /*incarnation=*/5, step, 0, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << step;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("incarnation 7"));
  }
}

TEST(PushGateTest, ARowOfRejectionsIsTheSlotsThoughAnotherProcessTakesItOver) {
  const PushGate gate = MakeGate(LagContract::REJECT, 0, 4);
  LedgerEntry entry;
  for (Step step = 1; step <= 3; ++step) {
    PushGate::Record(*gate.Judge(entry, step, step, 0, 8), step, step, &entry);
  }
  EXPECT_EQ(gate.Judge(entry, 4, 4, 0, 8)->verdict, ADMITTED);
}

}  // namespace
}  // namespace torchps
