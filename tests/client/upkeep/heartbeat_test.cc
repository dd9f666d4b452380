#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "torchps/client/slot_upkeep.h"

namespace torchps {
namespace {

TEST(HeartbeatTest, KeepsRenewingWhileAServerIsAway) {
  absl::Notification third;
  int renewals = 0;
  const Heartbeat heartbeat(
      absl::Milliseconds(1),
      [&](absl::Duration) {
        if (++renewals == 3) third.Notify();
        return absl::UnavailableError("away");
      },
      [](const absl::Status&) { ADD_FAILURE() << "the slot is not lost"; });
  third.WaitForNotification();
  EXPECT_TRUE(heartbeat.status().ok());
}

TEST(HeartbeatTest, ReportsALostSlotOnce) {
  absl::Notification lost;
  int renewals = 0;
  {
    const Heartbeat heartbeat(
        absl::Milliseconds(1),
        [&](absl::Duration) {
          ++renewals;
          return absl::AbortedError("taken over");
        },
        [&](const absl::Status& status) {
          EXPECT_EQ(status.message(), "taken over");
          lost.Notify();
        });
    lost.WaitForNotification();
    EXPECT_TRUE(absl::IsAborted(heartbeat.status()));
  }
  EXPECT_EQ(renewals, 1);
}

TEST(HeartbeatTest, WaitsForTheGivenPauseAfterEachRenewal) {
  absl::Notification third;
  int renewals = 0;
  int pauses = 0;
  const Heartbeat heartbeat(
      absl::Milliseconds(1),
      [&](absl::Duration interval) {
        EXPECT_EQ(interval, absl::Milliseconds(1));
        if (++renewals == 3) third.Notify();
        return absl::OkStatus();
      },
      [](const absl::Status&) { ADD_FAILURE() << "the slot is not lost"; },
      [&] { return ++pauses < 3 ? absl::ZeroDuration() : absl::Hours(1); });
  third.WaitForNotification();
}

TEST(HeartbeatTest, StopsWithoutWaitingForTheInterval) {
  const Heartbeat heartbeat(
      absl::Hours(1), [](absl::Duration) { return absl::OkStatus(); }, [](const absl::Status&) {});
}

}  // namespace
}  // namespace torchps
