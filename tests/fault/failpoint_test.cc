// Kills ps_server at each failpoint (torchps/common/process/failpoint.h), on a real disk, and
// restarts it. Acknowledged pushes are applied once; a push without an acknowledgement can be
// repeated.

#include "torchps/common/process/failpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/join_request.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/program.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

constexpr Step kSteps = 20;

JobHarness::Options Model() {
  JobHarness::Options model;
  model.workers = 1;
  model.job = "durability { level: LOG }";
  return model;
}

float Gradient(Step step) { return static_cast<float>(1 + step % 5); }

class FailpointTest : public ::testing::TestWithParam<FailpointRow> {
 protected:
  FailpointTest()
      : directory_(absl::StrCat(std::getenv("TEST_TMPDIR"), "/failpoint_", getpid(), "_",
                                static_cast<int>(GetParam().point))) {}

  ServerProgram Start(const std::string& failpoint) {
    if (!failpoint.empty()) setenv("TORCHPS_FAILPOINT", failpoint.c_str(), 1);
    ServerProgram server = StartServerProgram({absl::StrCat("--dir=", directory_)});
    unsetenv("TORCHPS_FAILPOINT");
    return server;
  }

  // Waits for the exit and expects that the failpoint caused it.
  static void ExpectFired(ServerProgram& server) {
    EXPECT_NE(server.program->AwaitExit(), 0);
    const std::string line = absl::StrCat("failpoint ", GetParam().name);
    const auto& said = server.program->error();
    EXPECT_TRUE(std::any_of(said.begin(), said.end(),
                            [&](const std::string& each) { return absl::StrContains(each, line); }))
        << "the server did not reach the failpoint; was the test built without "
           "--define=failpoints=1?";
  }

  const std::string directory_;
};

absl::Status WriteShard(PlainWorker& worker) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
  WriteShardRequest request;
  request.set_checkpoint(1);
  request.set_job_id(worker.hello().job_id());
  ShardInfo info;
  return FromGrpcStatus(worker.stub().WriteShard(&context, request, &info));
}

absl::StatusOr<JoinReply> Join(const std::string& address) {
  const JoinRequest request =
      JoinFor(JobHarness::Hello(Model()), address, /*nonce=*/5, /*train_samples=*/100);
  const auto stub = Coordinator::NewStub(PlainChannel(address));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
  JoinReply reply;
  const absl::Status status = FromGrpcStatus(stub->Join(&context, request, &reply));
  if (!status.ok()) return status;
  return reply;
}

TEST_P(FailpointTest, AfterAKillEachPushIsAppliedOnceAndAJoinCanBeRepeated) {
  const bool is_coordinators = GetParam().point == Failpoint::kStateKept;
  ServerProgram server = Start(absl::StrCat(
      GetParam().name,
      ":kill:", GetParam().point == Failpoint::kShardWritten || is_coordinators ? 1 : 5));
  ASSERT_NE(server.address, "");
  if (is_coordinators) {
    EXPECT_FALSE(Join(server.address).ok());
    ExpectFired(server);
    server = Start("");
    ASSERT_NE(server.address, "");
    const auto once = Join(server.address);
    const auto again = Join(server.address);
    ASSERT_TRUE(once.ok() && again.ok()) << once.status() << again.status();
    EXPECT_EQ(once->slot(), 0) << "the slot is held by a worker that got no reply";
    EXPECT_EQ(once->incarnation(), again->incarnation());
    return;
  }

  Step acknowledged = 0;
  {
    PlainWorker worker(PlainChannel(server.address), JobHarness::Hello(Model()));
    ASSERT_TRUE(worker.Hello().ok());
    ASSERT_TRUE(worker.Initialize(0).ok());
    ASSERT_TRUE(worker.ReadOnlyPull().ok());
    while (acknowledged < kSteps &&
           worker.Push(acknowledged + 1, Gradient(acknowledged + 1)).ok()) {
      ++acknowledged;
    }
    if (GetParam().point == Failpoint::kShardWritten) {
      EXPECT_FALSE(WriteShard(worker).ok());
    }
  }
  ExpectFired(server);

  server = Start("");
  ASSERT_NE(server.address, "");
  PlainWorker worker(PlainChannel(server.address), JobHarness::Hello(Model()));
  ASSERT_TRUE(worker.Hello().ok());
  EXPECT_GE(worker.hello_reply().last_step(), acknowledged);
  ASSERT_TRUE(worker.ReadOnlyPull().ok());
  // Pushes the remaining steps. The first may repeat a push that the crash left without an answer:
  // the server may contain it and must not apply it again.
  double sum = 0;
  for (Step step = 1; step <= kSteps + 1; ++step) {
    sum += Gradient(step);
    if (step <= acknowledged) continue;
    const auto pushed = worker.Push(step, Gradient(step));
    ASSERT_TRUE(pushed.ok()) << pushed.status();
  }
  ASSERT_TRUE(worker.ReadOnlyPull().ok());
  for (size_t block = 0; block < worker.blocks().size(); ++block) {
    EXPECT_EQ(worker.versions()[block], kSteps + 1);
    for (const float value : worker.values()[block]) EXPECT_EQ(value, static_cast<float>(-sum));
  }
}

INSTANTIATE_TEST_SUITE_P(All, FailpointTest, ::testing::ValuesIn(kFailpoints),
                         [](const ::testing::TestParamInfo<FailpointRow>& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace torchps
