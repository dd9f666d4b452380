#include <gtest/gtest.h>
#include <signal.h>

#include "torchps/common/process/command_line.h"
#include "torchps/tools/run_plan/launch_plan.h"

namespace torchps {
namespace {

TEST(RestartPolicy, DelayDoublesUpToTheMaximum) {
  RestartPolicy::Options options;
  options.most = 4;
  options.first_delay = absl::Seconds(1);
  options.longest_delay = absl::Seconds(3);
  RestartPolicy policy(options);
  for (const int seconds : {1, 2, 3, 3}) {
    EXPECT_EQ(policy.Died(absl::Seconds(10)), absl::Seconds(seconds));
  }
}

TEST(RestartPolicy, TooManyDeathsInTheWindowStopRestarts) {
  RestartPolicy::Options options;
  options.most = 2;
  options.window = absl::Minutes(10);
  RestartPolicy policy(options);
  EXPECT_TRUE(policy.Died(absl::Minutes(0)).has_value());
  EXPECT_TRUE(policy.Died(absl::Minutes(9)).has_value());
  EXPECT_FALSE(policy.Died(absl::Minutes(9.5)).has_value());
  EXPECT_EQ(policy.restarts(), 2);
}

TEST(RestartPolicy, IgnoresDeathsBeforeTheWindow) {
  RestartPolicy::Options options;
  options.most = 2;
  options.window = absl::Minutes(10);
  RestartPolicy policy(options);
  for (int death = 0; death < 10; ++death) {
    EXPECT_EQ(policy.Died(absl::Minutes(10 * death)), options.first_delay) << death;
  }
  EXPECT_EQ(policy.restarts(), 10);
}

TEST(RestartPolicy, ZeroDisablesRestarts) {
  RestartPolicy::Options options;
  options.most = 0;
  EXPECT_FALSE(RestartPolicy(options).Died(absl::ZeroDuration()).has_value());
}

TEST(RestartPolicy, RestartsOnlyAfterRetryableExits) {
  for (const int signal_number : {SIGKILL, SIGSEGV, SIGABRT, SIGTERM}) {
    EXPECT_TRUE(IsWorthRestarting(128 + signal_number, false)) << signal_number;
  }
  EXPECT_TRUE(IsWorthRestarting(255, false)) << "ssh lost its connection";
  EXPECT_TRUE(IsWorthRestarting(static_cast<int>(ExitCode::kLostSlot), false));
  EXPECT_TRUE(IsWorthRestarting(static_cast<int>(ExitCode::kUnreachable), false));
  for (const ExitCode code :
       {ExitCode::kOk, ExitCode::kFailed, ExitCode::kUsage, ExitCode::kRefused, ExitCode::kData}) {
    EXPECT_FALSE(IsWorthRestarting(static_cast<int>(code), true)) << static_cast<int>(code);
  }
  EXPECT_FALSE(IsWorthRestarting(127, false)) << "no such program";
  const int taken = static_cast<int>(ExitCode::kAddressInUse);
  EXPECT_FALSE(IsWorthRestarting(taken, false));
  EXPECT_TRUE(IsWorthRestarting(taken, true));
}

}  // namespace
}  // namespace torchps
