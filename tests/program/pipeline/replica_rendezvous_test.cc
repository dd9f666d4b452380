#include "torchps/program/pipeline/replica_rendezvous.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"
#include "torchps/common/stop_latch.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

RendezvousRequest Process(int stage, uint64_t nonce) {
  RendezvousRequest process;
  process.set_protocol_version(1);
  process.set_stages(3);
  process.set_stage(stage);
  process.set_nonce(nonce);
  process.set_train_samples(100);
  return process;
}

RendezvousReply ThreadAllReduce(uint64_t number) {
  RendezvousReply meeting;
  meeting.set_meeting(number);
  return meeting;
}

class ReplicaRendezvousTest : public ::testing::Test {
 protected:
  ReplicaRendezvousTest() {
    ReplicaRendezvous::Options options;
    options.stages = 3;
    // Gather() need not wait, because the other processes visit before it is called.
    options.patience = absl::ZeroDuration();
    options.name_of = [](int stage) { return absl::StrCat("stage ", stage); };
    options.clock = &clock_;
    options.stop = &stop_;
    gathering_ = std::make_unique<ReplicaRendezvous>(std::move(options));
  }

  // The answers to one visit. Empty while the visitor waits.
  using Answers = std::vector<absl::StatusOr<RendezvousReply>>;

  std::shared_ptr<Answers> Visit(const RendezvousRequest& process) {
    const auto answers = std::make_shared<Answers>();
    gathering_->Visit(process, [answers](const absl::StatusOr<RendezvousReply>& answer) {
      answers->push_back(answer);
    });
    return answers;
  }

  // Returns the status of the only answer. Returns INTERNAL if there is not exactly one.
  static absl::Status GetStatus(const std::shared_ptr<Answers>& answers) {
    if (answers->size() != 1) {
      return absl::InternalError(absl::StrCat(answers->size(), " answers"));
    }
    return answers->front().status();
  }

  ManualClock clock_;
  StopLatch stop_;
  std::unique_ptr<ReplicaRendezvous> gathering_;
};

TEST_F(ReplicaRendezvousTest, BeginAnswersAllWaitingVisitors) {
  const auto second = Visit(Process(2, 22));
  const auto first = Visit(Process(1, 11));
  const auto members = gathering_->Gather(Process(0, 10));
  ASSERT_TRUE(members.ok()) << members.status();
  ASSERT_EQ(members->size(), 3u);
  for (int stage = 0; stage < 3; ++stage) EXPECT_EQ((*members)[stage].stage(), stage);
  EXPECT_TRUE(first->empty() && second->empty());
  gathering_->Begin(ThreadAllReduce(7));
  for (const auto& answers : {first, second}) {
    ASSERT_TRUE(GetStatus(answers).ok()) << GetStatus(answers);
    EXPECT_EQ(answers->front()->meeting(), 7u);
  }
  // The member may have missed the answer, so it may ask again. But another process of stage 1 is
  // no member.
  EXPECT_TRUE(GetStatus(Visit(Process(1, 11))).ok());
  EXPECT_TRUE(absl::IsUnavailable(GetStatus(Visit(Process(1, 12)))));
}

TEST_F(ReplicaRendezvousTest, ALaterProcessOfAStageReplacesTheEarlierOne) {
  const auto earlier = Visit(Process(1, 11));
  const auto later = Visit(Process(1, 12));
  EXPECT_TRUE(absl::IsUnavailable(GetStatus(earlier)));
  Visit(Process(2, 22));
  ASSERT_TRUE(gathering_->Gather(Process(0, 10)).ok());
  gathering_->Begin(ThreadAllReduce(7));
  EXPECT_TRUE(GetStatus(later).ok()) << GetStatus(later);
}

TEST_F(ReplicaRendezvousTest, AfterGatheringALaterProcessOfAStageIsRefused) {
  const auto gathered = Visit(Process(1, 11));
  const auto second = Visit(Process(2, 22));
  ASSERT_TRUE(gathering_->Gather(Process(0, 10)).ok());
  const auto late = Visit(Process(1, 12));
  gathering_->Begin(ThreadAllReduce(7));
  EXPECT_TRUE(absl::IsUnavailable(GetStatus(gathered)));
  EXPECT_TRUE(absl::IsUnavailable(GetStatus(late)));
  EXPECT_TRUE(GetStatus(second).ok());
}

TEST_F(ReplicaRendezvousTest, RefusesAMismatchedProcessWithTheReason) {
  RendezvousRequest early = Process(1, 11);
  early.set_train_samples(99);
  const auto refused = Visit(early);
  EXPECT_TRUE(refused->empty()) << "not decided yet";
  const absl::Status missing = gathering_->Gather(Process(0, 10)).status();
  EXPECT_TRUE(absl::IsUnavailable(missing));
  EXPECT_THAT(missing.message(), HasSubstr("stage 1 and stage 2 did not connect"));
  EXPECT_TRUE(absl::IsFailedPrecondition(GetStatus(refused)));
  EXPECT_THAT(GetStatus(refused).message(), HasSubstr("training samples: 99"));

  RendezvousRequest stages = Process(2, 22);
  stages.set_stages(4);
  RendezvousRequest protocol = Process(2, 22);
  protocol.set_protocol_version(2);
  for (const RendezvousRequest& process : {stages, protocol, Process(0, 22), Process(3, 22)}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(GetStatus(Visit(process)))) << process.DebugString();
  }
}

TEST_F(ReplicaRendezvousTest, AfterADismissalTheProcessMayVisitAgain) {
  const auto first = Visit(Process(1, 11));
  gathering_->Dismiss(absl::UnavailableError("stage 2 is gone"));
  EXPECT_EQ(GetStatus(first), absl::UnavailableError("stage 2 is gone"));
  EXPECT_TRUE(Visit(Process(1, 11))->empty());
}

TEST_F(ReplicaRendezvousTest, CloseAnswersWaitingAndLaterVisitors) {
  const auto first = Visit(Process(1, 11));
  gathering_->Close(absl::UnavailableError("the leader has ended"));
  EXPECT_EQ(GetStatus(first), absl::UnavailableError("the leader has ended"));
  EXPECT_TRUE(absl::IsUnavailable(GetStatus(Visit(Process(1, 11)))));
}

TEST_F(ReplicaRendezvousTest, GatherReturnsCancelledAfterAStop) {
  stop_.Stop("by hand");
  EXPECT_TRUE(absl::IsCancelled(gathering_->Gather(Process(0, 10)).status()));
}

}  // namespace
}  // namespace torchps
