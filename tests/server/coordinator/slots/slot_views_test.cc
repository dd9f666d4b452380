#include "torchps/server/coordinator/slot_views.h"

#include <map>

#include "gtest/gtest.h"

namespace torchps {
namespace {

constexpr absl::Duration kLease = absl::Seconds(12);
constexpr int kServer = 1;

using Contact = SlotViews::Contact;
using Contacts = std::map<int, Contact>;

// Returns the contact of a slot whose renewals the server answered from `first` to `last`
// (seconds).
Contact Reached(double first, double last) {
  Contact contact;
  contact.answered = absl::Seconds(last);
  contact.first_reached = absl::Seconds(first);
  contact.last_reached = absl::Seconds(last);
  return contact;
}

Contact Missed(double answered, double missed) {
  Contact contact;
  contact.answered = absl::Seconds(answered);
  contact.missed = absl::Seconds(missed);
  return contact;
}

class SlotViewsTest : public ::testing::Test {
 protected:
  bool RecordRenewal(double seconds, SlotId slot, const Contacts& contacts) {
    return views_.RecordRenewal(slot, contacts, absl::ZeroDuration(), absl::Seconds(seconds));
  }
  bool RecordRenewal(double seconds, SlotId slot, const Contact& contact) {
    return RecordRenewal(seconds, slot, Contacts{{kServer, contact}});
  }
  void Pass(double seconds) { views_.Pass(absl::Seconds(seconds)); }

  SlotViews views_{kLease};
};

TEST_F(SlotViewsTest, CutsOffASlotIfAnotherSlotReachesTheServer) {
  EXPECT_FALSE(RecordRenewal(107, 0, Reached(0, 107)));
  EXPECT_FALSE(RecordRenewal(111.9, 1, Missed(100, 104))) << "less than a lease";
  EXPECT_TRUE(RecordRenewal(112, 1, Missed(100, 104)));
  EXPECT_FALSE(RecordRenewal(112, 0, Reached(0, 111)))
      << "a slot that reaches the server is not cut off";
  EXPECT_FALSE(RecordRenewal(113, 1, Reached(113, 113))) << "the server is reachable again";
}

TEST_F(SlotViewsTest, CutsOffNoSlotIfTheServerMayHaveCrashed) {
  EXPECT_FALSE(RecordRenewal(107, 0, Reached(0, 106.9)));
  EXPECT_FALSE(RecordRenewal(112, 1, Missed(100, 104))) << "the server may have crashed just after";
  EXPECT_FALSE(RecordRenewal(112.1, 0, Missed(106.9, 110.9)));
  for (double seconds = 113; seconds < 200; ++seconds) {
    EXPECT_FALSE(RecordRenewal(seconds, 1, Missed(100, 104))) << seconds;
    EXPECT_FALSE(RecordRenewal(seconds + 0.5, 0, Missed(106.9, 110.9))) << seconds;
  }
}

TEST_F(SlotViewsTest, GivesASlotOneLeaseTimeToFindARestartedServer) {
  RecordRenewal(150, 0, Reached(150, 150));
  EXPECT_FALSE(RecordRenewal(151, 1, Missed(100, 104)));
  RecordRenewal(161, 0, Reached(150, 161));
  EXPECT_FALSE(RecordRenewal(161.9, 1, Missed(100, 104)));
  EXPECT_TRUE(RecordRenewal(162, 1, Missed(100, 104))) << "a lease after the other slot found it";
}

TEST_F(SlotViewsTest, NeverCutsOffASingleSlot) {
  for (double seconds = 0; seconds < 100; ++seconds)
    EXPECT_FALSE(RecordRenewal(seconds, 0, Missed(-9, -5)));
}

TEST_F(SlotViewsTest, IgnoresOldReportsAndForgottenSlots) {
  RecordRenewal(110, 0, Reached(0, 110));
  EXPECT_TRUE(RecordRenewal(116, 1, Missed(100, 104)));
  EXPECT_FALSE(RecordRenewal(116.1, 1, Missed(100, 104)));
  RecordRenewal(117, 0, Reached(0, 117));
  EXPECT_TRUE(RecordRenewal(117, 1, Missed(100, 104)));
  views_.Forget(0);
  EXPECT_FALSE(RecordRenewal(117, 1, Missed(100, 104)));
}

TEST_F(SlotViewsTest, JudgesEachServerSeparately) {
  RecordRenewal(111, 0, {{1, Missed(100, 104)}, {2, Reached(0, 111)}});
  EXPECT_FALSE(RecordRenewal(112, 1, {{1, Missed(100, 104)}, {2, Reached(0, 112)}}));
  EXPECT_TRUE(RecordRenewal(112, 1, {{1, Missed(100, 104)}, {2, Missed(100, 104)}}));
}

TEST_F(SlotViewsTest, IgnoresSlotsWithoutAReport) {
  EXPECT_FALSE(RecordRenewal(111, 0, Contacts()));
  EXPECT_FALSE(RecordRenewal(112, 1, Missed(100, 104)));
  RecordRenewal(112, 0, Reached(0, 112));
  EXPECT_FALSE(RecordRenewal(113, 1, Contacts()));
}

TEST_F(SlotViewsTest, IgnoresReportsFromACoordinatorPause) {
  Pass(100);
  Pass(106);
  RecordRenewal(106, 0, Reached(0, 106));
  // The coordinator, the server and their network pause for seven seconds. Slot 0's renewal arrives
  // late.
  Pass(113);
  EXPECT_FALSE(RecordRenewal(113, 0, Reached(7, 112.9)));
  EXPECT_FALSE(RecordRenewal(113.1, 1, Missed(100, 104)));
  Pass(115);
  EXPECT_FALSE(RecordRenewal(115, 1, Missed(100, 104)));
  RecordRenewal(115, 0, Reached(0, 115));
  EXPECT_TRUE(RecordRenewal(115.1, 1, Missed(100, 104))) << "reported since";
}

TEST_F(SlotViewsTest, RemembersForHowLongATrainerMadeNoProgress) {
  views_.RecordRenewal(3, {}, absl::Seconds(41), absl::ZeroDuration());
  EXPECT_EQ(views_.stalled_for(3), absl::Seconds(41));
  EXPECT_EQ(views_.stalled_for(4), absl::ZeroDuration());
  views_.Forget(3);
  EXPECT_EQ(views_.stalled_for(3), absl::ZeroDuration());
}

}  // namespace
}  // namespace torchps
