#include "server/rpc/read_places.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"

namespace torchps {
namespace {

constexpr int64_t kFrame = int64_t{1} << 20;
constexpr int kFramesOfAStint = ReadPlaces::kStintBytes / kFrame;

// One that has come by a connection of its own, unless it is given one.
class Stream {
 public:
  Stream(ReadPlaces* places, std::string connection)
      : places_(places), connection_(std::move(connection)) {}
  // Also those that stand in line when a test ends.
  ~Stream() { places_->Leave(&stint_); }

  // Whether it may read now or has to wait.
  bool Ask(int64_t to_come = kFrame) {
    const bool may_read =
        places_->Ask(&stint_, kFrame, to_come, connection_, [this] { reads_ = true; });
    if (may_read) reads_ = true;
    return may_read;
  }
  void Come() {
    reads_ = false;
    places_->Came(&stint_);
  }
  // A frame, once it may be read, and again as often as `frames` says. True: it never had to wait.
  bool Bring(int frames) {
    for (int i = 0; i < frames; ++i) {
      if (!Ask()) return false;
      Come();
    }
    return true;
  }
  void Leave() { places_->Leave(&stint_); }
  // It was let read, and no frame has come since.
  bool reads() const { return reads_; }

 private:
  ReadPlaces* const places_;
  const std::string connection_;
  ReadPlaces::Stint stint_;
  bool reads_ = false;
};

class ReadPlacesTest : public ::testing::Test {
 protected:
  Stream& Add(std::string connection = "") {
    if (connection.empty()) connection = absl::StrCat("connection ", streams_.size());
    streams_.push_back(std::make_unique<Stream>(&places_, std::move(connection)));
    return *streams_.back();
  }

  ManualClock clock_;
  ReadPlaces places_{/*places=*/1, &clock_};
  std::vector<std::unique_ptr<Stream>> streams_;
};

TEST_F(ReadPlacesTest, WhoIsAloneIsReadForAsLongAsItLikes) {
  Stream& alone = Add();
  EXPECT_TRUE(alone.Bring(10 * kFramesOfAStint));
  EXPECT_FALSE(places_.waits());
}

TEST_F(ReadPlacesTest, OneIsReadForAStintThenTheNext) {
  Stream& first = Add();
  Stream& second = Add();
  Stream& third = Add();
  ASSERT_TRUE(first.Bring(1));
  EXPECT_FALSE(second.Ask());
  EXPECT_FALSE(third.Ask());
  EXPECT_TRUE(places_.waits());
  EXPECT_TRUE(first.Bring(kFramesOfAStint - 1));
  EXPECT_FALSE(second.reads());
  EXPECT_FALSE(first.Ask());
  EXPECT_TRUE(second.reads());
  EXPECT_FALSE(third.reads());
  second.Come();
  EXPECT_TRUE(second.Bring(kFramesOfAStint - 1));
  EXPECT_FALSE(second.Ask());
  EXPECT_TRUE(third.reads());
  EXPECT_FALSE(first.reads());
}

TEST_F(ReadPlacesTest, WhoLeavesMakesRoom) {
  Stream& first = Add();
  Stream& second = Add();
  ASSERT_TRUE(first.Bring(1));
  ASSERT_FALSE(second.Ask());
  first.Leave();
  EXPECT_TRUE(second.reads());
  // Once more changes nothing, and its next push begins a stint of its own.
  first.Leave();
  EXPECT_FALSE(first.Ask());
}

TEST_F(ReadPlacesTest, WhoLeavesTheLineIsNeverRead) {
  Stream& first = Add();
  Stream& gone = Add();
  Stream& third = Add();
  ASSERT_TRUE(first.Bring(1));
  ASSERT_FALSE(gone.Ask());
  ASSERT_FALSE(third.Ask());
  gone.Leave();
  first.Leave();
  EXPECT_FALSE(gone.reads());
  EXPECT_TRUE(third.reads());
}

TEST_F(ReadPlacesTest, TellsWhetherWhoIsReadHasMuchToCome) {
  Stream& first = Add();
  Stream& second = Add();
  EXPECT_FALSE(places_.reads_long());
  ASSERT_TRUE(first.Ask(ReadPlaces::kLongBytes));
  EXPECT_TRUE(places_.reads_long());
  ASSERT_FALSE(second.Ask(ReadPlaces::kLongBytes));
  first.Come();
  EXPECT_TRUE(places_.reads_long()) << "the next part of it is on its way";
  ASSERT_TRUE(first.Ask(ReadPlaces::kLongBytes - kFrame));
  EXPECT_FALSE(places_.reads_long()) << "its end is near, and the other one stands in line";
  first.Leave();
  EXPECT_TRUE(places_.reads_long());
  second.Leave();
  EXPECT_FALSE(places_.reads_long());
}

TEST_F(ReadPlacesTest, AStreamMayBeGivenUpByItsOwnContinuation) {
  Stream& first = Add();
  ASSERT_TRUE(first.Bring(1));
  // As a call whose last reference stands in line.
  struct Call {
    explicit Call(ReadPlaces* read_places) : places(read_places) {}
    ~Call() { places->Leave(&stint); }
    ReadPlaces* const places;
    ReadPlaces::Stint stint;
  };
  auto call = std::make_shared<Call>(&places_);
  ReadPlaces::Stint* const stint = &call->stint;
  const std::weak_ptr<Call> alive = call;
  ASSERT_FALSE(places_.Ask(stint, kFrame, kFrame, "its own", [call] {}));
  call.reset();
  ASSERT_FALSE(alive.expired());
  places_.Leave(stint);
  EXPECT_TRUE(alive.expired());
  EXPECT_FALSE(places_.waits());
}

TEST_F(ReadPlacesTest, WhoIsLateLosesItsPlaceAndGoesOnWithItsStint) {
  Stream& late = Add();
  Stream& second = Add();
  Stream& third = Add();
  ASSERT_TRUE(late.Ask());
  ASSERT_FALSE(second.Ask());
  ASSERT_FALSE(third.Ask());
  clock_.Advance(ReadPlaces::kPatience - absl::Microseconds(1));
  places_.PassOn(clock_.Now());
  EXPECT_FALSE(second.reads());
  const absl::Duration asked = clock_.Now();
  clock_.Advance(absl::Microseconds(1));
  places_.PassOn(asked);
  EXPECT_FALSE(second.reads()) << "its frame may lie in the queue";
  places_.PassOn(clock_.Now());
  EXPECT_TRUE(second.reads());
  EXPECT_FALSE(third.reads());
  late.Come();
  EXPECT_TRUE(late.Bring(kFramesOfAStint - 1));
  EXPECT_FALSE(late.Ask());
  EXPECT_FALSE(third.reads()) << "the place was the second one's";
}

TEST_F(ReadPlacesTest, AFrameThatIsHereIsNotLate) {
  Stream& first = Add();
  Stream& second = Add();
  ASSERT_TRUE(first.Bring(1));
  ASSERT_FALSE(second.Ask());
  clock_.Advance(absl::Seconds(10));
  places_.PassOn(clock_.Now());
  EXPECT_FALSE(second.reads());
}

TEST_F(ReadPlacesTest, WhoBringsItsFramesJustInTimeLosesItsPlaceInTheEnd) {
  Stream& slow = Add();
  Stream& second = Add();
  ASSERT_TRUE(slow.Ask());
  ASSERT_FALSE(second.Ask());
  absl::Duration held = absl::ZeroDuration();
  while (!second.reads()) {
    ASSERT_LT(held, ReadPlaces::kLongestStint);
    clock_.Advance(ReadPlaces::kPatience / 2);
    held += ReadPlaces::kPatience / 2;
    places_.PassOn(clock_.Now());
    slow.Come();
    ASSERT_TRUE(slow.Ask()) << "its stint is not over";
  }
  EXPECT_EQ(held, ReadPlaces::kLongestStint);
}

TEST_F(ReadPlacesTest, WhereNothingComesTheFirstInLineIsReadAsWell) {
  Stream& first = Add();
  Stream& second = Add();
  Stream& third = Add();
  ASSERT_TRUE(first.Ask());
  ASSERT_FALSE(second.Ask());
  ASSERT_FALSE(third.Ask());
  places_.NothingCame();
  EXPECT_TRUE(second.reads());
  EXPECT_FALSE(third.reads());
  places_.NothingCame();
  EXPECT_TRUE(third.reads());
  places_.NothingCame();
  // Now three have a place where one is. It is free when all have given it up.
  Stream& fourth = Add();
  ASSERT_FALSE(fourth.Ask());
  first.Leave();
  second.Leave();
  EXPECT_FALSE(fourth.reads());
  third.Leave();
  EXPECT_TRUE(fourth.reads());
}

TEST_F(ReadPlacesTest, NobodyStandsInLineWhileThePollerSleeps) {
  Stream& first = Add();
  Stream& second = Add();
  ASSERT_TRUE(first.Ask());
  ASSERT_TRUE(places_.BeginSleep());
  EXPECT_TRUE(second.Ask());
  places_.EndSleep();
  Stream& third = Add();
  EXPECT_FALSE(third.Ask());
  EXPECT_FALSE(places_.BeginSleep()) << "somebody stands in line";
}

TEST_F(ReadPlacesTest, StreamsOfOneConnectionShareAPlaceButDoNotPassOthersInLine) {
  Stream& first = Add("shared");
  Stream& second = Add("shared");
  Stream& other = Add();
  Stream& third = Add("shared");
  ASSERT_TRUE(first.Ask());
  EXPECT_TRUE(second.Ask());
  EXPECT_FALSE(other.Ask());
  EXPECT_FALSE(third.Ask());
  first.Leave();
  EXPECT_FALSE(other.reads());
  second.Leave();
  EXPECT_TRUE(other.reads());
  EXPECT_FALSE(third.reads());
}

TEST(ReadPlacesOfTwoTest, HoweverManyStreamsAConnectionHasItTakesOnePlace) {
  ManualClock clock;
  ReadPlaces places(/*places=*/2, &clock);
  Stream first(&places, "shared");
  Stream second(&places, "shared");
  Stream other(&places, "its own");
  Stream last(&places, "also its own");
  EXPECT_TRUE(first.Ask());
  EXPECT_TRUE(second.Ask());
  EXPECT_TRUE(other.Ask());
  EXPECT_FALSE(last.Ask());
}

// Streams ask, bring frames, are late and leave in any order.
class Play {
 public:
  explicit Play(uint64_t seed)
      : random_(seed), most_(1 + random_() % 3), places_(static_cast<int>(most_), &clock_) {
    const size_t streams = most_ + 1 + random_() % 10;
    for (size_t i = 0; i < streams; ++i) {
      streams_.push_back(std::make_unique<Stream>(&places_, absl::StrCat(i)));
      waits_.push_back(false);
    }
  }

  void Step() {
    const size_t i = random_() % streams_.size();
    Stream& stream = *streams_[i];
    if (waits_[i]) {
      if (random_() % 16 == 0) LeaveLine(i);
      Look(/*may_be_idle=*/random_() % 4 == 0);
    } else if (stream.reads()) {
      stream.Come();
      if (random_() % 8 == 0) stream.Leave();
    } else if (!stream.Ask()) {
      waits_[i] = true;
      line_.push_back(i);
      held_back_ = true;
    }
    CheckOrder();
  }

  // Nobody brings anything any more: the line still gets through.
  void End() {
    for (size_t i = 0; i <= streams_.size() && places_.waits(); ++i) {
      clock_.Advance(ReadPlaces::kLongestStint);
      // Those whose frame is here have to ask for another one to be late with it.
      for (size_t j = 0; j < streams_.size(); ++j) {
        if (!waits_[j] && !streams_[j]->reads()) streams_[j]->Leave();
      }
      Look(/*may_be_idle=*/false);
      CheckOrder();
    }
    EXPECT_FALSE(places_.waits());
    EXPECT_TRUE(line_.empty());
    EXPECT_TRUE(held_back_) << "nobody ever had to wait";
  }

 private:
  // What the thread that polls does.
  void Look(bool may_be_idle) {
    clock_.Advance(absl::Milliseconds(static_cast<int>(random_() % 10)));
    places_.PassOn(clock_.Now());
    if (may_be_idle) places_.NothingCame();
    CheckOrder();
    EXPECT_EQ(places_.waits(), !line_.empty());
    const bool may_sleep = places_.BeginSleep();
    EXPECT_EQ(may_sleep, line_.empty());
    if (may_sleep) places_.EndSleep();
  }

  void LeaveLine(size_t i) {
    streams_[i]->Leave();
    waits_[i] = false;
    line_.erase(std::find(line_.begin(), line_.end(), i));
  }

  // Those who were let read stood before all who still wait.
  void CheckOrder() {
    while (!line_.empty() && streams_[line_.front()]->reads()) {
      waits_[line_.front()] = false;
      line_.pop_front();
    }
    for (const size_t i : line_) EXPECT_FALSE(streams_[i]->reads()) << "one was passed over";
  }

  std::mt19937_64 random_;
  const size_t most_;
  ManualClock clock_;
  ReadPlaces places_;
  std::vector<std::unique_ptr<Stream>> streams_;
  // By stream, and in the order in which they asked.
  std::vector<bool> waits_;
  std::deque<size_t> line_;
  bool held_back_ = false;
};

TEST(ReadPlacesPlayTest, TheLineIsServedInItsOrderAndToItsEnd) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Play play(seed);
    for (int i = 0; i < 400; ++i) play.Step();
    play.End();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace torchps
