#include "torchps/transport/event_poller.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpc/support/time.h"
#include "grpcpp/alarm.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using Status = grpc::CompletionQueue::NextStatus;

class EventPollerTest : public ::testing::Test {
 protected:
  ~EventPollerTest() override {
    queue_.Shutdown();
    while (poller_.Await(absl::InfiniteFuture(), &tag_, &ok_) != Status::SHUTDOWN) {
    }
  }

  void Post(grpc::Alarm* alarm) { alarm->Set(&queue_, gpr_inf_past(GPR_CLOCK_REALTIME), alarm); }

  grpc::CompletionQueue queue_;
  EventPoller poller_{&queue_};
  void* tag_ = nullptr;
  bool ok_ = false;
};

TEST_F(EventPollerTest, TimesOutOnAnEmptyQueue) {
  EXPECT_EQ(poller_.Poll(&tag_, &ok_), Status::TIMEOUT);
  EXPECT_EQ(poller_.Await(absl::Now(), &tag_, &ok_), Status::TIMEOUT);
}

// The poller spins at first. After a wait without an event, it sleeps instead. It must find events
// in both modes.
TEST_F(EventPollerTest, FindsEventsWhileItSpinsOrSleeps) {
  grpc::Alarm alarms[4];
  for (grpc::Alarm& alarm : alarms) {
    Post(&alarm);
    EXPECT_EQ(poller_.Await(absl::InfiniteFuture(), &tag_, &ok_), Status::GOT_EVENT);
    EXPECT_EQ(tag_, &alarm);
    EXPECT_TRUE(ok_);
    EXPECT_EQ(poller_.Await(absl::Now(), &tag_, &ok_), Status::TIMEOUT);
  }
}

TEST_F(EventPollerTest, ReportsTheShutdown) {
  queue_.Shutdown();
  EXPECT_EQ(poller_.Await(absl::InfiniteFuture(), &tag_, &ok_), Status::SHUTDOWN);
}

}  // namespace
}  // namespace torchps
