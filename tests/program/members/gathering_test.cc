#include "program/members/gathering.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/stop_latch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

MeetRequest Process(int stage, uint64_t nonce) {
  MeetRequest process;
  process.set_protocol_version(1);
  process.set_stages(3);
  process.set_stage(stage);
  process.set_nonce(nonce);
  process.set_train_samples(100);
  return process;
}

MeetReply Meeting(uint64_t number) {
  MeetReply meeting;
  meeting.set_meeting(number);
  return meeting;
}

class GatheringTest : public ::testing::Test {
 protected:
  GatheringTest() {
    Gathering::Options options;
    options.stages = 3;
    // Whoever is to be there has come before.
    options.patience = absl::ZeroDuration();
    options.name_of = [](int stage) { return absl::StrCat("stage ", stage); };
    options.clock = &clock_;
    options.stop = &stop_;
    gathering_ = std::make_unique<Gathering>(std::move(options));
  }

  // Empty while it waits.
  using Answers = std::vector<absl::StatusOr<MeetReply>>;

  std::shared_ptr<Answers> Visit(const MeetRequest& process) {
    const auto answers = std::make_shared<Answers>();
    gathering_->Visit(process, [answers](const absl::StatusOr<MeetReply>& answer) {
      answers->push_back(answer);
    });
    return answers;
  }

  // The only answer.
  static absl::Status StatusOf(const std::shared_ptr<Answers>& answers) {
    if (answers->size() != 1) {
      return absl::InternalError(absl::StrCat(answers->size(), " answers"));
    }
    return answers->front().status();
  }

  ManualClock clock_;
  StopLatch stop_;
  std::unique_ptr<Gathering> gathering_;
};

TEST_F(GatheringTest, AllWhoHaveComeHearOfTheMeetingWhenItBegins) {
  const auto second = Visit(Process(2, 22));
  const auto first = Visit(Process(1, 11));
  const auto members = gathering_->Gather(Process(0, 10));
  ASSERT_TRUE(members.ok()) << members.status();
  ASSERT_EQ(members->size(), 3u);
  for (int stage = 0; stage < 3; ++stage) EXPECT_EQ((*members)[stage].stage(), stage);
  EXPECT_TRUE(first->empty() && second->empty());
  gathering_->Begin(Meeting(7));
  for (const auto& answers : {first, second}) {
    ASSERT_TRUE(StatusOf(answers).ok()) << StatusOf(answers);
    EXPECT_EQ(answers->front()->meeting(), 7u);
  }
  // One that has not heard the answer asks again; another process is none of them.
  EXPECT_TRUE(StatusOf(Visit(Process(1, 11))).ok());
  EXPECT_TRUE(absl::IsUnavailable(StatusOf(Visit(Process(1, 12)))));
}

TEST_F(GatheringTest, TheLatestProcessOfAStageTakesPart) {
  const auto earlier = Visit(Process(1, 11));
  const auto later = Visit(Process(1, 12));
  EXPECT_TRUE(absl::IsUnavailable(StatusOf(earlier)));
  Visit(Process(2, 22));
  ASSERT_TRUE(gathering_->Gather(Process(0, 10)).ok());
  gathering_->Begin(Meeting(7));
  EXPECT_TRUE(StatusOf(later).ok()) << StatusOf(later);
}

TEST_F(GatheringTest, WhoReplacesOneThatWasGatheredComesTooLate) {
  const auto gathered = Visit(Process(1, 11));
  const auto second = Visit(Process(2, 22));
  ASSERT_TRUE(gathering_->Gather(Process(0, 10)).ok());
  const auto late = Visit(Process(1, 12));
  gathering_->Begin(Meeting(7));
  EXPECT_TRUE(absl::IsUnavailable(StatusOf(gathered)));
  EXPECT_TRUE(absl::IsUnavailable(StatusOf(late)));
  EXPECT_TRUE(StatusOf(second).ok());
}

TEST_F(GatheringTest, WhoDoesNotFitIsRefusedInWords) {
  MeetRequest early = Process(1, 11);
  early.set_train_samples(99);
  const auto refused = Visit(early);
  EXPECT_TRUE(refused->empty()) << "nobody knows yet";
  const absl::Status missing = gathering_->Gather(Process(0, 10)).status();
  EXPECT_TRUE(absl::IsUnavailable(missing));
  EXPECT_THAT(missing.message(), HasSubstr("stage 1 and stage 2 did not come"));
  EXPECT_TRUE(absl::IsFailedPrecondition(StatusOf(refused)));
  EXPECT_THAT(StatusOf(refused).message(), HasSubstr("training samples: 99"));

  MeetRequest stages = Process(2, 22);
  stages.set_stages(4);
  MeetRequest protocol = Process(2, 22);
  protocol.set_protocol_version(2);
  for (const MeetRequest& process : {stages, protocol, Process(0, 22), Process(3, 22)}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(StatusOf(Visit(process)))) << process.DebugString();
  }
}

TEST_F(GatheringTest, WhoIsDismissedMayComeAgain) {
  const auto first = Visit(Process(1, 11));
  gathering_->Dismiss(absl::UnavailableError("stage 2 is gone"));
  EXPECT_EQ(StatusOf(first), absl::UnavailableError("stage 2 is gone"));
  EXPECT_TRUE(Visit(Process(1, 11))->empty());
}

TEST_F(GatheringTest, NobodyWaitsForALeaderThatHasEnded) {
  const auto first = Visit(Process(1, 11));
  gathering_->Close(absl::UnavailableError("the leader has ended"));
  EXPECT_EQ(StatusOf(first), absl::UnavailableError("the leader has ended"));
  EXPECT_TRUE(absl::IsUnavailable(StatusOf(Visit(Process(1, 11)))));
}

TEST_F(GatheringTest, AStoppedLeaderWaitsForNobody) {
  stop_.Stop("by hand");
  EXPECT_TRUE(absl::IsCancelled(gathering_->Gather(Process(0, 10)).status()));
}

}  // namespace
}  // namespace torchps
