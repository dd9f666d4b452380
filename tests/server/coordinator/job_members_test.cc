#include "torchps/server/coordinator/job_members.h"

#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::Duration kLease = absl::Seconds(10);

class JobMembersTest : public ::testing::Test {
 protected:
  static SlotRegistry::Options Slots() {
    SlotRegistry::Options options;
    options.lease = kLease;
    options.first_incarnation = 7;
    return options;
  }

  static JoinRequest From(uint64_t nonce, SlotId wanted = -1) {
    JoinRequest request;
    request.set_nonce(nonce);
    request.set_wanted_slot(wanted);
    request.set_host("host");
    request.set_device("cpu");
    return request;
  }

  SlotHolder Take(uint64_t nonce, SlotId wanted = -1) {
    const auto taken = members_.Take(From(nonce, wanted), now_);
    EXPECT_TRUE(taken.ok()) << taken.status();
    return taken->holder;
  }

  absl::Duration now_ = absl::Seconds(100);
  JobMembers members_{Slots()};
};

TEST_F(JobMembersTest, AProcessThatJoinsAgainIsNotNewAndKeepsItsIncarnation) {
  const auto first = members_.Take(From(/*nonce=*/1), now_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->is_new);
  const auto again = members_.Take(From(/*nonce=*/1), now_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->is_new);
  EXPECT_EQ(again->holder.incarnation, first->holder.incarnation);
}

// Operators read these texts in terminals, which would obey the control characters.
TEST_F(JobMembersTest, ReplacesControlCharactersInReportedTexts) {
  JoinRequest request = From(/*nonce=*/1);
  request.set_host("\x1b]0;owned\x07\x1b[2J");
  request.set_device("cpu\nserver 0: all is well");
  const auto taken = members_.Take(request, now_);
  ASSERT_TRUE(taken.ok()) << taken.status();
  const MemberState& member = members_.accounting().at(taken->holder.slot);
  EXPECT_EQ(member.host(), "?]0;owned??[2J");
  EXPECT_EQ(member.device(), "cpu?server 0: all is well");
  // The message that refuses another process contains the host name as well.
  const absl::Status held = members_.Take(From(/*nonce=*/2, taken->holder.slot), now_).status();
  EXPECT_THAT(std::string(held.message()), HasSubstr("?]0;owned??[2J"));
  members_.End(taken->holder, SlotAccounting::LEFT,
               "bye\r\x9b"
               "2J" +
                   std::string(600, 'x'));
  EXPECT_EQ(members_.accounting().at(taken->holder.slot).reason(),
            "bye??2J" + std::string(505, 'x'));
}

TEST_F(JobMembersTest, SavesAndRestoresTheDevicesOfASlot) {
  JoinRequest request = From(/*nonce=*/1);
  for (int i = 0; i < 300; ++i) {
    ReplicaMember& member = *request.add_member();
    member.set_host("host\n");
    member.set_device("cpu\x1b");
    member.set_stage(-1);
    member.set_model_bytes(i);
    member.set_own_process(true);
  }
  const auto taken = members_.Take(request, now_);
  ASSERT_TRUE(taken.ok()) << taken.status();
  CoordinatorState state;
  members_.SaveTo(&state);
  SlotRegistry::Options later = Slots();
  later.first_incarnation = taken->holder.incarnation + 1;
  JobMembers restored(later);
  const absl::Status recalled = restored.Restore(state, now_);
  ASSERT_TRUE(recalled.ok()) << recalled;
  JobStatus status;
  restored.Describe(&status);
  ASSERT_EQ(status.slot(0).member_size(), 256) << "for any number from a peer";
  EXPECT_EQ(status.slot(0).member(1).host(), "host?");
  EXPECT_EQ(status.slot(0).member(1).device(), "cpu?");
  EXPECT_EQ(status.slot(0).member(1).stage(), -1);
  EXPECT_EQ(status.slot(0).member(1).model_bytes(), 1u);
  EXPECT_TRUE(status.slot(0).member(1).own_process());
  // The next process in the slot runs on one device, so it reports no members.
  members_.End(taken->holder, SlotAccounting::LEFT, "");
  Take(/*nonce=*/2, taken->holder.slot);
  status.Clear();
  members_.Describe(&status);
  EXPECT_EQ(status.slot(0).member_size(), 0);
}

TEST_F(JobMembersTest, SumsFiguresOverIncarnationsAndResetsOtherFields) {
  const SlotHolder first = Take(/*nonce=*/1);
  MemberState& member = members_.accounting().at(first.slot);
  StepFigures figures;
  figures.set_pushes(3);
  figures.set_samples(30);
  figures.set_nonfinite_in_a_row(2);
  JobMembers::AddFigures(figures, &member);
  member.set_call(5);
  member.set_lease(9);
  members_.End(first, SlotAccounting::LEFT, "went away");
  EXPECT_EQ(member.lease(), 0u);
  EXPECT_EQ(member.reason(), "went away");

  const SlotHolder second = Take(/*nonce=*/2, first.slot);
  EXPECT_GT(second.incarnation, first.incarnation);
  figures.set_nonfinite_in_a_row(0);
  JobMembers::AddFigures(figures, &member);
  EXPECT_EQ(member.figures().pushes(), 6u);
  EXPECT_EQ(member.figures().samples(), 60u);
  EXPECT_EQ(member.figures().nonfinite_in_a_row(), 0u) << "in a row, so not a sum";
  EXPECT_EQ(member.call(), 0u);
  EXPECT_EQ(member.reason(), "");
  EXPECT_EQ(member.state(), SlotAccounting::JOINED);
  EXPECT_EQ(members_.MostSteps(), 6);
}

TEST_F(JobMembersTest, AnEndedIncarnationStaysTheLatestUntilReplaced) {
  const SlotHolder first = Take(/*nonce=*/1);
  EXPECT_TRUE(members_.IsLive(first.slot));
  members_.End(first, SlotAccounting::LEFT, "");
  EXPECT_FALSE(members_.IsLive(first.slot));
  EXPECT_TRUE(members_.IsLatest(first));
  EXPECT_TRUE(absl::IsAborted(members_.Renew(first, now_).status()));
  Take(/*nonce=*/2, first.slot);
  EXPECT_FALSE(members_.IsLatest(first));
  EXPECT_FALSE(members_.IsLive(50));
  EXPECT_FALSE(members_.IsLatest({50, 100})) << "never assigned";
}

// A cluster that is cancelled before the job begins loses all slots in one tick.
TEST_F(JobMembersTest, ManyUntrainedSlotsMayEndAtOnce) {
  std::vector<SlotHolder> holders;
  for (SlotId slot = 0; slot < 100; ++slot) holders.push_back(Take(/*nonce=*/1 + slot, slot));
  EXPECT_THAT(members_.Expire(absl::Hours(1)), SizeIs(100));
  for (const SlotHolder& holder : holders) members_.End(holder, SlotAccounting::EXPIRED, "");
  EXPECT_THAT(members_.accounting(), SizeIs(JobMembers::kMaxUntrainedDeparted));
}

TEST_F(JobMembersTest, ProcessesThatOnlyJoinAndLeaveAreForgotten) {
  const SlotHolder trainer = Take(/*nonce=*/1);
  const SlotHolder former = Take(/*nonce=*/2);
  StepFigures figures;
  figures.set_pushes(1);
  for (const SlotHolder& holder : {trainer, former}) {
    JobMembers::AddFigures(figures, &members_.accounting().at(holder.slot));
  }
  members_.End(former, SlotAccounting::LEFT, "");
  SlotHolder idle;
  for (SlotId slot = 2; slot < 2000; ++slot) {
    idle = Take(/*nonce=*/100 + slot, slot);
    members_.End(idle, SlotAccounting::LEFT, "");
  }
  EXPECT_THAT(members_.accounting(), SizeIs(2 + JobMembers::kMaxUntrainedDeparted));
  EXPECT_EQ(members_.accounting().count(former.slot), 1u) << "reports list it";
  EXPECT_EQ(members_.accounting().count(idle.slot), 1u) << "it left last";
  EXPECT_TRUE(members_.IsLatest({2, idle.incarnation - 1990})) << "its LeaveJob may be repeated";
  const SlotHolder next = Take(/*nonce=*/5000, /*wanted=*/2);
  EXPECT_GT(next.incarnation, idle.incarnation);

  CoordinatorState state;
  members_.SaveTo(&state);
  EXPECT_LT(state.ByteSizeLong(), 10'000u);
}

TEST_F(JobMembersTest, AFinishedSlotStaysFinishedAfterExpiry) {
  const SlotHolder holder = Take(/*nonce=*/1);
  members_.accounting().at(holder.slot).set_state(SlotAccounting::FINISHED);
  members_.End(holder, SlotAccounting::EXPIRED, "its lease ran out");
  EXPECT_EQ(members_.accounting().at(holder.slot).state(), SlotAccounting::FINISHED);
  EXPECT_EQ(members_.accounting().at(holder.slot).reason(), "");
}

TEST_F(JobMembersTest, OnlyLiveSlotsAwaitTheStart) {
  const SlotHolder first = Take(/*nonce=*/1);
  const SlotHolder second = Take(/*nonce=*/2);
  EXPECT_EQ(members_.FirstAwaiting(), -1);
  for (auto& [slot, member] : members_.accounting()) member.set_awaits_start(true);
  EXPECT_EQ(members_.awaiting(), 2);
  EXPECT_EQ(members_.FirstAwaiting(), first.slot);
  members_.End(first, SlotAccounting::LEFT, "");
  EXPECT_EQ(members_.awaiting(), 1);
  EXPECT_EQ(members_.FirstAwaiting(), second.slot);
  EXPECT_FALSE(members_.Awaits(-1));
}

TEST_F(JobMembersTest, TruncatesLongTextsBetweenCharacters) {
  JoinRequest request = From(/*nonce=*/1);
  std::string host(511, 'h');
  host += "\xc3\xa4";
  request.set_host(host);
  const auto taken = members_.Take(request, now_);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_THAT(members_.accounting().at(taken->holder.slot).host(), SizeIs(511));
}

TEST_F(JobMembersTest, RestoresTheSavedState) {
  const SlotHolder first = Take(/*nonce=*/1);
  Take(/*nonce=*/2);
  members_.accounting().at(first.slot).set_awaits_start(true);
  members_.End(first, SlotAccounting::LEFT, "went away");
  CoordinatorState saved;
  members_.SaveTo(&saved);

  SlotRegistry::Options slots = Slots();
  slots.first_incarnation = saved.next_incarnation();
  JobMembers restored(slots);
  ASSERT_TRUE(restored.Restore(saved, now_).ok());
  CoordinatorState again;
  restored.SaveTo(&again);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(saved, again))
      << saved.DebugString() << again.DebugString();
  EXPECT_FALSE(restored.IsLive(first.slot));
}

TEST_F(JobMembersTest, ARepeatedSlotInTheSavedStateIsDataLoss) {
  Take(/*nonce=*/1);
  CoordinatorState saved;
  members_.SaveTo(&saved);
  *saved.add_member() = saved.member(0);
  SlotRegistry::Options slots = Slots();
  slots.first_incarnation = saved.next_incarnation();
  const absl::Status twice = JobMembers(slots).Restore(saved, now_);
  EXPECT_TRUE(absl::IsDataLoss(twice));
  EXPECT_THAT(std::string(twice.message()), HasSubstr("invalid or repeated slot 0"));
}

}  // namespace
}  // namespace torchps
