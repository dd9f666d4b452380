#include "torchps/server/periodic_tasks.h"

#include <atomic>
#include <future>
#include <thread>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"

namespace torchps {
namespace {

TEST(PeriodicTasksTest, RunsTheTaskPeriodically) {
  std::promise<void> third;
  int times = 0;
  PeriodicTasks housekeeping(absl::Microseconds(1), [&] {
    if (++times == 3) third.set_value();
  });
  third.get_future().wait();
}

TEST(PeriodicTasksTest, HurryRunsTheTaskEarlier) {
  std::atomic<int> times{0};
  PeriodicTasks housekeeping(absl::Hours(24), [&] { ++times; });
  for (int time = 1; time <= 3; ++time) {
    housekeeping.Hurry(absl::Microseconds(1));
    EXPECT_TRUE(Eventually([&] { return times == time; }));
  }
  // The next run is due earlier than in 48 hours, so this changes nothing.
  housekeeping.Hurry(absl::Hours(48));
  housekeeping.Stop();
  EXPECT_EQ(times, 3);
}

TEST(PeriodicTasksTest, StopsWithoutWaitingForTheInterval) {
  std::atomic<int> times{0};
  PeriodicTasks housekeeping(absl::Hours(24), [&] { ++times; });
  // If Stop() waited for the interval, the test would exceed its time limit.
  housekeeping.Stop();
  housekeeping.Stop();
  EXPECT_EQ(times, 0);
}

TEST(PeriodicTasksTest, StopWaitsForARunningTask) {
  std::promise<void> began;
  std::promise<void> may_end;
  std::atomic<bool> has_ended{false};
  PeriodicTasks housekeeping(absl::Microseconds(1), [&] {
    if (has_ended) return;
    began.set_value();
    may_end.get_future().wait();
    has_ended = true;
  });
  began.get_future().wait();
  std::thread other([&] { may_end.set_value(); });
  housekeeping.Stop();
  EXPECT_TRUE(has_ended);
  other.join();
}

}  // namespace
}  // namespace torchps
