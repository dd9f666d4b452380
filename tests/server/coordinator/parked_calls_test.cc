#include "torchps/server/coordinator/parked_calls.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ParkedCallsTest : public ::testing::Test {
 protected:
  // Returns a callback that records the call's name and the status code of its answer.
  template <typename T>
  Reply<T> As(const std::string& name) {
    return [this, name](const absl::StatusOr<T>& answer) {
      answered_.push_back(name + " " + absl::StatusCodeToString(answer.status().code()));
    };
  }

  std::vector<std::string> Answered() {
    for (const auto& give : calls_.TakeReady()) give();
    return std::exchange(answered_, {});
  }

  ParkedCalls calls_;
  std::vector<std::string> answered_;
};

TEST_F(ParkedCallsTest, AnAnswerIsDeliveredOnceItIsTaken) {
  EXPECT_EQ(calls_.AnswerNow<JobStatus>(As<JobStatus>("status"), JobStatus()), 0u);
  EXPECT_THAT(answered_, IsEmpty());
  EXPECT_THAT(Answered(), ElementsAre("status OK"));
  EXPECT_THAT(Answered(), IsEmpty());
}

TEST_F(ParkedCallsTest, KeepsASlotsCallUntilAnswered) {
  calls_.starts.Park(3, As<AwaitStartReply>("start 3"));
  EXPECT_NE(calls_.starts.Find(3), 0u);
  EXPECT_EQ(calls_.starts.Find(2), 0u);
  EXPECT_EQ(calls_.works.Find(3), 0u);
  calls_.starts.Answer(2, AwaitStartReply());
  EXPECT_THAT(Answered(), IsEmpty());
  calls_.starts.Answer(3, AwaitStartReply());
  calls_.starts.Answer(3, AwaitStartReply());
  EXPECT_THAT(Answered(), ElementsAre("start 3 OK"));
  EXPECT_EQ(calls_.starts.Find(3), 0u);
}

TEST_F(ParkedCallsTest, ARepeatedCallReplacesAndCancelsTheFirst) {
  calls_.works.Park(0, As<NextWorkReply>("first"));
  const ParkedCalls::Id first = calls_.works.Find(0);
  calls_.works.Park(0, As<NextWorkReply>("repeat"));
  EXPECT_NE(calls_.works.Find(0), first);
  EXPECT_THAT(Answered(), ElementsAre("first CANCELLED"));
  // The first caller disconnects only now.
  calls_.Cancel(first);
  calls_.works.Answer(0, NextWorkReply());
  EXPECT_THAT(Answered(), ElementsAre("repeat OK"));
}

TEST_F(ParkedCallsTest, ACancelledCallIsNotAnswered) {
  calls_.starts.Park(0, As<AwaitStartReply>("start"));
  calls_.works.Park(0, As<NextWorkReply>("work"));
  const ParkedCalls::Id status = calls_.statuses.Park(As<JobStatus>("status"));
  const ParkedCalls::Id other = calls_.statuses.Park(As<JobStatus>("other status"));
  const ParkedCalls::Id checkpoint =
      calls_.for_next_checkpoint.Park(As<CheckpointStatus>("checkpoint"));
  EXPECT_NE(status, other);
  for (const ParkedCalls::Id id :
       {calls_.starts.Find(0), calls_.works.Find(0), status, checkpoint, ParkedCalls::Id{1000}}) {
    calls_.Cancel(id);
  }
  calls_.Abandon(absl::UnavailableError("the end"));
  EXPECT_THAT(Answered(), ElementsAre("other status UNAVAILABLE"));
}

TEST_F(ParkedCallsTest, CallsParkedBeforeACheckpointBeginsGetItsResult) {
  calls_.for_next_checkpoint.Park(As<CheckpointStatus>("early"));
  calls_.for_next_checkpoint.MoveTo(calls_.for_this_checkpoint);
  calls_.for_next_checkpoint.Park(As<CheckpointStatus>("late"));
  calls_.for_this_checkpoint.Answer(CheckpointStatus());
  EXPECT_THAT(Answered(), ElementsAre("early OK"));
  EXPECT_TRUE(calls_.for_this_checkpoint.empty());
  EXPECT_FALSE(calls_.for_next_checkpoint.empty());
}

TEST_F(ParkedCallsTest, AbandonAnswersEveryCall) {
  calls_.starts.Park(0, As<AwaitStartReply>("start 0"));
  calls_.starts.Park(1, As<AwaitStartReply>("start 1"));
  calls_.works.Park(1, As<NextWorkReply>("work 1"));
  calls_.statuses.Park(As<JobStatus>("status"));
  calls_.for_this_checkpoint.Park(As<CheckpointStatus>("this"));
  calls_.for_next_checkpoint.Park(As<CheckpointStatus>("next"));
  calls_.Abandon(absl::UnavailableError("the end"));
  EXPECT_THAT(Answered(),
              ElementsAre("start 0 UNAVAILABLE", "start 1 UNAVAILABLE", "work 1 UNAVAILABLE",
                          "status UNAVAILABLE", "this UNAVAILABLE", "next UNAVAILABLE"));
}

}  // namespace
}  // namespace torchps
