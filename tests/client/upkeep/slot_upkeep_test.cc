#include "client/upkeep/slot_upkeep.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SlotUpkeepTest : public ::testing::Test {
 protected:
  SlotUpkeepTest() : upkeep_(MakeOptions()) {}

  SlotUpkeep::Options MakeOptions() {
    SlotUpkeep::Options options;
    options.slot = 1;
    options.lease = absl::Seconds(10);
    options.progress_timeout = absl::Seconds(600);
    options.standing = [this] { return standing_; };
    options.renew_slot = [this](absl::Duration, absl::Duration standing,
                                const std::vector<int>& silent) {
      told_standing_ = standing;
      told_silent_ = silent;
      return slot_reply_;
    };
    options.renew_leases = [this](absl::Duration, absl::Duration standing, absl::Duration silence) {
      EXPECT_EQ(standing, standing_);
      EXPECT_EQ(silence, absl::Seconds(10));
      return renewals_;
    };
    options.step_aside = [this](absl::Duration, const std::vector<int>& silent) {
      EXPECT_EQ(silent, renewals_.silent);
      ++steps_aside_;
    };
    options.log = [this](const std::string& line) { lines_.push_back(line); };
    options.clock = &clock_;
    return options;
  }

  absl::Status Renew() { return upkeep_.Renew(absl::Seconds(3)); }

  ManualClock clock_;
  absl::Duration standing_;
  Renewals renewals_;
  absl::StatusOr<RenewSlotReply> slot_reply_ = RenewSlotReply();
  absl::Duration told_standing_;
  std::vector<int> told_silent_;
  int steps_aside_ = 0;
  std::vector<std::string> lines_;
  SlotUpkeep upkeep_;
};

TEST_F(SlotUpkeepTest, TellsTheCoordinatorWhatTheServersHaveSaid) {
  standing_ = absl::Seconds(5);
  renewals_.silent = {2};
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(told_standing_, absl::Seconds(5));
  EXPECT_THAT(told_silent_, ElementsAre(2));
  EXPECT_EQ(steps_aside_, 0) << "the coordinator does not say that others reach it";
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(SlotUpkeepTest, ASlotThatIsCutOffStepsAsideAndSaysSoOnce) {
  renewals_.silent = {2};
  slot_reply_->set_cut_off(true);
  EXPECT_TRUE(Renew().ok());
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(steps_aside_, 2) << "it may have been let in again meanwhile";
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("slot 1 does not reach server 2 any more, and other "
                                            "slots do: it leaves the clocks of all servers")));
  // It is back, and is cut off once more.
  slot_reply_->set_cut_off(false);
  EXPECT_TRUE(Renew().ok());
  slot_reply_->set_cut_off(true);
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(steps_aside_, 3);
  EXPECT_EQ(lines_.size(), 2u);
}

TEST_F(SlotUpkeepTest, ATrainerThatStandsStillTakesItsSlotAside) {
  standing_ = absl::Seconds(599);
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(steps_aside_, 0);
  standing_ = absl::Seconds(602);
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(steps_aside_, 1);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("the trainer of slot 1 has computed or read data for "
                                            "602 s without an end of a pass")));
}

TEST_F(SlotUpkeepTest, SaysForWhomItWaitsEveryHalfMinute) {
  const auto waits = [&](double seconds) {
    renewals_.held_up_by = HeldUpBy{0, absl::Seconds(seconds), "server 1 at here:7000"};
    EXPECT_TRUE(Renew().ok());
  };
  waits(9);
  EXPECT_THAT(lines_, IsEmpty());
  waits(12);
  EXPECT_THAT(lines_, ElementsAre("waiting for slot 0: server 1 at here:7000 has heard neither a "
                                  "pull nor a push of it for 12 s"));
  clock_.Advance(absl::Seconds(29));
  waits(41);
  EXPECT_EQ(lines_.size(), 1u);
  clock_.Advance(absl::Seconds(1));
  waits(42);
  EXPECT_EQ(lines_.size(), 2u);
}

TEST_F(SlotUpkeepTest, DoesNotSayThatItWaitsWhileItWorksOrForItself) {
  renewals_.held_up_by = HeldUpBy{1, absl::Seconds(50), "server 0"};
  EXPECT_TRUE(Renew().ok());
  renewals_.held_up_by->slot = 0;
  standing_ = absl::Seconds(1);
  EXPECT_TRUE(Renew().ok());
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(SlotUpkeepTest, ASlotThatIsLostIsSaidToBe) {
  slot_reply_ = absl::AbortedError("taken over");
  EXPECT_TRUE(absl::IsAborted(Renew()));
  EXPECT_EQ(steps_aside_, 0);
}

TEST_F(SlotUpkeepTest, ACoordinatorThatIsAwayDecidesNothing) {
  slot_reply_ = absl::UnavailableError("away");
  renewals_.silent = {0};
  EXPECT_TRUE(absl::IsUnavailable(Renew()));
  EXPECT_EQ(steps_aside_, 0);
}

}  // namespace
}  // namespace torchps
