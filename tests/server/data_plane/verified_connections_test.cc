#include "torchps/server/data_plane/verified_connections.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"
#include "torchps/common/types.h"

namespace torchps {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr absl::Duration kAMoment = absl::Milliseconds(1);

class VerifiedConnectionsTest : public ::testing::Test {
 protected:
  // Records a call by incarnation 1 of `slot`, which stays live until End().
  void RecordCall(const std::string& connection, SlotId slot) {
    live_.insert({slot, 1});
    known_.RecordCall(connection, slot, 1);
  }
  void End(SlotId slot) { live_.erase({slot, 1}); }

  void Forget() {
    known_.Forget(
        [this](SlotId slot, Incarnation incarnation) {
          return live_.count({slot, incarnation}) > 0;
        },
        kPatience);
  }

  ManualClock clock_;
  VerifiedConnections known_{&clock_};
  std::set<std::pair<SlotId, Incarnation>> live_;
};

TEST_F(VerifiedConnectionsTest, VerifiesAConnectionAfterALiveSlotsCall) {
  EXPECT_FALSE(known_.Knows("ipv4:10.0.0.2:5000"));
  RecordCall("ipv4:10.0.0.2:5000", 3);
  EXPECT_TRUE(known_.Knows("ipv4:10.0.0.2:5000"));
  EXPECT_FALSE(known_.Knows("ipv4:10.0.0.2:5001"));
  Forget();
  EXPECT_TRUE(known_.Knows("ipv4:10.0.0.2:5000"));
}

TEST_F(VerifiedConnectionsTest, AConnectionWithinTheProcessIsAlwaysVerified) {
  EXPECT_TRUE(known_.Knows(""));
  RecordCall("", 3);
  End(3);
  Forget();
  EXPECT_TRUE(known_.Knows(""));
}

TEST_F(VerifiedConnectionsTest, ForgetsAConnectionWhenItsLastLiveSlotEnds) {
  RecordCall("a", 3);
  RecordCall("b", 4);
  End(3);
  Forget();
  EXPECT_FALSE(known_.Knows("a"));
  EXPECT_TRUE(known_.Knows("b"));
  // A second slot of the same process uses the same connection.
  RecordCall("b", 5);
  End(4);
  Forget();
  EXPECT_TRUE(known_.Knows("b"));
  End(5);
  Forget();
  EXPECT_FALSE(known_.Knows("b"));
}

TEST_F(VerifiedConnectionsTest, ForgetsAPredecessorsConnectionAndKeepsItsSuccessors) {
  RecordCall("old", 3);
  known_.RecordCall("new", 3, 2);
  live_ = {{3, 2}};
  Forget();
  EXPECT_FALSE(known_.Knows("old"));
  EXPECT_TRUE(known_.Knows("new"));
}

TEST_F(VerifiedConnectionsTest, ForgetsAnIdleConnection) {
  RecordCall("silent", 3);
  RecordCall("renewing", 3);
  clock_.Advance(kPatience - kAMoment);
  RecordCall("renewing", 3);
  Forget();
  EXPECT_TRUE(known_.Knows("silent"));
  clock_.Advance(kAMoment);
  Forget();
  EXPECT_FALSE(known_.Knows("silent"));
  EXPECT_TRUE(known_.Knows("renewing"));
}

TEST_F(VerifiedConnectionsTest, EvictsTheConnectionIdleForLongest) {
  const auto name = [](size_t number) { return absl::StrCat("ipv4:10.0.0.2:", number); };
  for (size_t i = 0; i < VerifiedConnections::kMax; ++i) {
    RecordCall(name(i), 3);
    clock_.Advance(absl::Nanoseconds(1));
  }
  RecordCall(name(0), 3);
  RecordCall("one more", 3);
  EXPECT_TRUE(known_.Knows("one more"));
  EXPECT_TRUE(known_.Knows(name(0)));
  EXPECT_FALSE(known_.Knows(name(1)));
  EXPECT_TRUE(known_.Knows(name(2)));
}

}  // namespace
}  // namespace torchps
