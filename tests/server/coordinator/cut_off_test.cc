// Tests when the coordinator treats slots as cut off. Runs the code of workers and coordinator in
// simulated time with random phases, delays and faults. TORCHPS_CUT_OFF_DRAWS sets the number of
// draws.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"
#include "torchps/client/remote_server.h"
#include "torchps/client/slot_upkeep.h"
#include "torchps/common/hash.h"
#include "torchps/server/coordinator/job_members.h"

namespace torchps {
namespace {

constexpr absl::Duration kLease = absl::Seconds(10);
constexpr int kServer = 1;

// Upper bounds of the random delays in one draw.
struct Delays {
  absl::Duration late;     // until a renewal starts
  absl::Duration way;      // of a request to the coordinator
  absl::Duration answer;   // of a server's answer
  absl::Duration finding;  // until a slot finds the server after a fault
};

// No renewal that begins during the fault reaches the server.
struct Fault {
  absl::Duration begin;
  absl::Duration end;
  SlotId slot = -1;   // -1: all slots
  bool told = false;  // calls fail at once
};

class World {
 public:
  World(uint64_t seed, int slots, Delays delays, std::vector<Fault> faults)
      : random_(seed), delays_(delays), faults_(std::move(faults)) {
    members_ = std::make_unique<JobMembers>(SlotRegistry::Options{kLease, 1});
    for (SlotId slot = 0; slot < slots; ++slot) AddSlot(slot);
    Plan(absl::ZeroDuration(), [this] { RunPeriodicTasks(); });
  }

  // Runs until `end`. Returns each report that a slot is cut off, with its time, in order of time.
  std::vector<std::pair<absl::Duration, SlotId>> Run(absl::Duration end) {
    while (!events_.empty() && events_.top().at < end) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      event.what();
    }
    return cut_off_;
  }

 private:
  struct Event {
    absl::Duration at;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Slot final : UpkeepCalls {
    explicit Slot(World* in) : world(*in) {}

    absl::Duration stalled_for() const override { return absl::ZeroDuration(); }
    absl::StatusOr<RenewSlotReply> RenewSlot(absl::Duration, RenewSlotRequest request) override {
      const absl::Duration way = world.Draw(world.delays_.way);
      request.set_slot(holder.slot);
      world.Plan(world.now_ + (clock.Now() - world.began_) + way,
                 [this, request = std::move(request)] { world.RecordRenewal(*this, request); });
      clock.Advance(way);
      return RenewSlotReply();
    }
    Renewals RenewLeases(absl::Duration timeout, absl::Duration,
                         absl::Duration longest_pause) override {
      lease->RenewalBegins();
      const absl::Duration answer = world.Draw(world.delays_.answer);
      const Fault* const fault = world.Find(holder.slot, answer);
      clock.Advance(fault == nullptr ? answer : fault->told ? absl::ZeroDuration() : timeout);
      lease->RenewalEnds(fault == nullptr, longest_pause);
      Renewals renewals;
      renewals.contacts[kServer] = lease->contact();
      return renewals;
    }
    void StepAside(absl::Duration, const std::vector<int>&) override {
      ADD_FAILURE() << "no reply says that the slot is cut off";
    }

    World& world;
    ManualClock clock;
    std::unique_ptr<ServerLease> lease;
    std::unique_ptr<SlotUpkeep> upkeep;
    SlotHolder holder;
  };

  absl::Duration Draw(absl::Duration most) {
    return absl::Nanoseconds(UniformBelow(random_, absl::ToInt64Nanoseconds(most) + 1));
  }
  void Plan(absl::Duration at, std::function<void()> what) {
    events_.push({at, order_++, std::move(what)});
  }
  // Ends slots with expired leases, like the periodic tasks of the coordinator.
  void RunPeriodicTasks() {
    EXPECT_TRUE(members_->Expire(now_).empty());
    Plan(now_ + absl::Milliseconds(100), [this] { RunPeriodicTasks(); });
  }

  void AddSlot(SlotId number) {
    slots_.push_back(std::make_unique<Slot>(this));
    Slot* const slot = slots_.back().get();
    JoinRequest join;
    join.set_wanted_slot(number);
    join.set_nonce(number + 1);
    slot->holder = members_->Take(join, absl::ZeroDuration())->holder;
    slot->lease = std::make_unique<ServerLease>(&slot->clock);
    slot->lease->Begin(/*server_incarnation=*/1);
    SlotUpkeep::Options options;
    options.slot = number;
    options.lease = kLease;
    options.calls = slot;
    options.clock = &slot->clock;
    slot->upkeep = std::make_unique<SlotUpkeep>(std::move(options));
    Plan(Draw(kLease / 3), [this, slot] { Renew(slot); });
  }

  const Fault* Find(SlotId slot, absl::Duration answer) {
    for (const Fault& fault : faults_) {
      const bool hits = fault.slot == -1 || fault.slot == slot;
      if (hits && now_ + answer >= fault.begin && now_ < fault.end + Draw(delays_.finding)) {
        return &fault;
      }
    }
    return nullptr;
  }

  void Renew(Slot* slot) {
    began_ = slot->clock.Now();
    EXPECT_TRUE(slot->upkeep->Renew(kLease / 3).ok());
    const absl::Duration pause = slot->upkeep->pause() + Draw(delays_.late);
    slot->clock.Advance(pause);
    Plan(now_ + (slot->clock.Now() - began_), [this, slot] { Renew(slot); });
  }

  void RecordRenewal(const Slot& slot, const RenewSlotRequest& request) {
    EXPECT_TRUE(members_->Renew(slot.holder, now_).ok());
    if (members_->RecordRenewal(request, now_)) cut_off_.emplace_back(now_, slot.holder.slot);
  }

  uint64_t random_;
  const Delays delays_;
  const std::vector<Fault> faults_;
  std::unique_ptr<JobMembers> members_;
  absl::Duration now_;
  absl::Duration began_;  // when the current renewal began, by the clock of its slot
  uint64_t order_ = 0;
  std::priority_queue<Event> events_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::pair<absl::Duration, SlotId>> cut_off_;
};

int Draws() {
  int draws = 2000;
  const char* const wish = std::getenv("TORCHPS_CUT_OFF_DRAWS");
  if (wish != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(wish, &draws)) << wish;
  }
  return draws;
}

TEST(CutOffTest, TheOnlySlotThatCannotReachAServerIsReportedInTime) {
  const Delays delays{kLease / 50, kLease / 50, kLease / 200, absl::ZeroDuration()};
  absl::Duration longest;
  for (int seed = 1; seed <= Draws(); ++seed) {
    SCOPED_TRACE(seed);
    uint64_t random = seed;
    const int slots = 2 + static_cast<int>(UniformBelow(random, 4));
    const absl::Duration cut = kLease * 2 + kLease * UniformBelow(random, 1000) / 1000;
    const Fault fault{cut, absl::InfiniteDuration(), 0, UniformBelow(random, 4) == 0};
    const auto told = World(random, slots, delays, {fault}).Run(cut + kLease * 4);
    ASSERT_FALSE(told.empty());
    for (const auto& [at, slot] : told) ASSERT_EQ(slot, 0);
    ASSERT_GE(told.front().first, cut + kLease / 2);
    longest = std::max(longest, told.front().first - cut);
    ASSERT_LE(told.front().first, cut + kLease * 6 / 5);
    ASSERT_GE(told.back().first, cut + kLease * 3.5) << "stays cut off";
  }
  std::printf("%.3f leases at most\n", absl::FDivDuration(longest, kLease));
}

TEST(CutOffTest, NoSlotIsCutOffWhileTheServerIsAwayForAll) {
  const Delays delays{kLease / 8, kLease / 10, kLease / 50, kLease / 10};
  for (int seed = 1; seed <= Draws(); ++seed) {
    SCOPED_TRACE(seed);
    uint64_t random = seed;
    const int slots = 2 + static_cast<int>(UniformBelow(random, 4));
    std::vector<Fault> faults;
    absl::Duration end = kLease * 2;
    for (int i = 0; i < 3; ++i) {
      const absl::Duration begin = end + kLease * (500 + UniformBelow(random, 1500)) / 1000;
      end = begin + kLease * (50 + UniformBelow(random, i == 0 ? 3000 : 500)) / 1000;
      faults.push_back({begin, end, -1, UniformBelow(random, 2) == 0});
    }
    // The last fault may be permanent.
    if (UniformBelow(random, 2) == 0) faults.back().end = absl::InfiniteDuration();
    const auto told = World(random, slots, delays, faults).Run(end + kLease * 3);
    ASSERT_TRUE(told.empty()) << "slot " << told.front().second << " at " << told.front().first
                              << ", away from " << faults[0].begin << " to " << faults[0].end;
  }
}

// The server is away for all slots at the same time. No slot reaches it later than another slot, so
// no slot may be cut off.
TEST(CutOffTest, NoSlotIsCutOffBecauseItsRenewalsAreLate) {
  const Delays delays{kLease / 3, kLease / 10, kLease / 50, absl::ZeroDuration()};
  for (int seed = 1; seed <= Draws(); ++seed) {
    SCOPED_TRACE(seed);
    uint64_t random = seed;
    const int slots = 2 + static_cast<int>(UniformBelow(random, 4));
    const absl::Duration begin = kLease * (3000 + UniformBelow(random, 1000)) / 1000;
    const Fault fault{begin, absl::InfiniteDuration(), -1, UniformBelow(random, 2) == 0};
    const auto told = World(random, slots, delays, {fault}).Run(begin + kLease * 3);
    ASSERT_TRUE(told.empty()) << "slot " << told.front().second << " at " << told.front().first
                              << ", away from " << begin;
  }
}

}  // namespace
}  // namespace torchps
