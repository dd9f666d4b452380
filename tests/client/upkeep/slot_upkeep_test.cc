#include "torchps/client/slot_upkeep.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SlotUpkeepTest : public ::testing::Test, public UpkeepCalls {
 protected:
  SlotUpkeepTest() : upkeep_(MakeOptions()) {}

  SlotUpkeep::Options MakeOptions() {
    SlotUpkeep::Options options;
    options.slot = 1;
    options.lease = absl::Seconds(10);
    options.progress_timeout = absl::Seconds(600);
    options.log = [this](const std::string& line) { lines_.push_back(line); };
    options.calls = this;
    options.clock = &clock_;
    return options;
  }

  absl::Duration stalled_for() const override { return stalled_for_; }
  absl::StatusOr<RenewSlotReply> RenewSlot(absl::Duration, RenewSlotRequest request) override {
    told_ = std::move(request);
    return slot_reply_;
  }
  Renewals RenewLeases(absl::Duration, absl::Duration stalled_for,
                       absl::Duration longest_pause) override {
    EXPECT_EQ(stalled_for, stalled_for_);
    EXPECT_EQ(longest_pause, absl::Seconds(5));
    clock_.Advance(taken_);
    return renewals_;
  }
  void StepAside(absl::Duration, const std::vector<int>& silent) override {
    EXPECT_THAT(silent, ElementsAreArray(told_.silent_server()));
    ++steps_aside_;
  }

  absl::Status Renew() { return upkeep_.Renew(absl::Seconds(3)); }

  // Sets the server's last answer to `seconds` ago. No renewal succeeded since.
  void SetMissed(int server, double seconds) {
    ServerLease::Contact contact;
    contact.answered = clock_.Now() - absl::Seconds(seconds);
    contact.missed = contact.answered + absl::Seconds(3);
    renewals_.contacts[server] = contact;
  }

  ManualClock clock_;
  absl::Duration stalled_for_;
  Renewals renewals_;
  absl::StatusOr<RenewSlotReply> slot_reply_ = RenewSlotReply();
  absl::Duration taken_;  // the time that the servers take to answer
  RenewSlotRequest told_;
  int steps_aside_ = 0;
  std::vector<std::string> lines_;
  SlotUpkeep upkeep_;
};

TEST_F(SlotUpkeepTest, ReportsServerContactsToTheCoordinator) {
  stalled_for_ = absl::Seconds(5);
  SetMissed(2, 10);
  SetMissed(3, 9);
  ServerLease::Contact reached;
  reached.answered = clock_.Now();
  reached.first_reached = clock_.Now() - absl::Seconds(60);
  reached.last_reached = clock_.Now() - absl::Seconds(0.25);
  renewals_.contacts[1] = reached;
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(told_.stalled_seconds(), 5);
  EXPECT_THAT(told_.silent_server(), ElementsAre(2));
  ASSERT_EQ(told_.contact_size(), 3);
  EXPECT_EQ(told_.contact(0).server(), 1);
  EXPECT_FALSE(told_.contact(0).has_missed_seconds());
  EXPECT_EQ(told_.contact(0).first_reached_seconds(), 60);
  EXPECT_EQ(told_.contact(0).last_reached_seconds(), 0.25);
  EXPECT_EQ(told_.contact(1).answered_seconds(), 10);
  EXPECT_EQ(told_.contact(1).missed_seconds(), 7);
  EXPECT_FALSE(told_.contact(1).has_first_reached_seconds());
  EXPECT_EQ(steps_aside_, 0) << "the coordinator does not report other slots' contact";
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(SlotUpkeepTest, RenewsMoreOftenWhileAServerIsMissing) {
  taken_ = absl::Seconds(1);
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(upkeep_.pause(), absl::Seconds(2));
  SetMissed(1, 4);
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(upkeep_.pause(), absl::Seconds(0.25)) << "an eighth of a lease";
  taken_ = absl::Seconds(2);
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(upkeep_.pause(), absl::ZeroDuration());
}

TEST_F(SlotUpkeepTest, ACutOffSlotStepsAside) {
  SetMissed(2, 10);
  slot_reply_->set_cut_off(true);
  EXPECT_TRUE(Renew().ok());
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(steps_aside_, 2) << "the slot may have re-entered since";
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("slot 1 cannot reach server 2 any more, but other "
                                            "slots can; it leaves the clocks of all servers")));
  // The slot reaches the server again, and is then cut off a second time.
  slot_reply_->set_cut_off(false);
  EXPECT_TRUE(Renew().ok());
  slot_reply_->set_cut_off(true);
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(steps_aside_, 3);
  EXPECT_EQ(lines_.size(), 2u);
}

TEST_F(SlotUpkeepTest, AHangingTrainerStepsAside) {
  stalled_for_ = absl::Seconds(599);
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(steps_aside_, 0);
  stalled_for_ = absl::Seconds(602);
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(steps_aside_, 1);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("the trainer of slot 1 has computed or read data for "
                                            "602 s without finishing a pass")));
}

TEST_F(SlotUpkeepTest, LogsTheBlockingSlotEveryHalfMinute) {
  const auto waits = [&](double seconds) {
    renewals_.blocking_slot = BlockingSlot{0, absl::Seconds(seconds), "server 1 at here:7000"};
    EXPECT_TRUE(Renew().ok());
  };
  waits(9);
  EXPECT_THAT(lines_, IsEmpty());
  waits(12);
  EXPECT_THAT(lines_, ElementsAre("waiting for slot 0: server 1 at here:7000 has received neither "
                                  "a pull nor a push from it for 12 s"));
  clock_.Advance(absl::Seconds(29));
  waits(41);
  EXPECT_EQ(lines_.size(), 1u);
  clock_.Advance(absl::Seconds(1));
  waits(42);
  EXPECT_EQ(lines_.size(), 2u);
}

TEST_F(SlotUpkeepTest, DoesNotLogWhileItsOwnSlotBlocks) {
  renewals_.blocking_slot = BlockingSlot{1, absl::Seconds(50), "server 0"};
  EXPECT_TRUE(Renew().ok());
  renewals_.blocking_slot->slot = 0;
  stalled_for_ = absl::Seconds(1);
  EXPECT_TRUE(Renew().ok());
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(SlotUpkeepTest, ReturnsAbortedForALostSlot) {
  slot_reply_ = absl::AbortedError("taken over");
  EXPECT_TRUE(absl::IsAborted(Renew()));
  EXPECT_EQ(steps_aside_, 0);
}

TEST_F(SlotUpkeepTest, DoesNotStepAsideWhileTheCoordinatorIsUnavailable) {
  slot_reply_ = absl::UnavailableError("away");
  SetMissed(0, 10);
  EXPECT_TRUE(absl::IsUnavailable(Renew()));
  EXPECT_EQ(steps_aside_, 0);
}

}  // namespace
}  // namespace torchps
