// Tests how the coordinator learns the servers' addresses: first from workers, and from each server
// once it registers.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/job_coordinator_rig.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Rig = JobCoordinatorRig;

class ServerAddressesTest : public ::testing::Test {
 protected:
  absl::StatusOr<JoinReply> Join(uint64_t nonce, const std::vector<std::string>& addresses) {
    JoinRequest join = Rig::SmallJob();
    join.set_nonce(nonce);
    *join.mutable_server_address() = {addresses.begin(), addresses.end()};
    absl::StatusOr<JoinReply> reply = rig_.Join(join);
    if (reply.ok()) job_id_ = reply->job_id();
    return reply;
  }

  absl::Status Register(int index, uint64_t life, const std::string& address) {
    RegisterServerRequest request;
    request.set_job_id(job_id_);
    request.set_server_count(2);
    request.mutable_place()->set_server_index(index);
    request.mutable_place()->set_server_incarnation(life);
    request.mutable_place()->set_address(address);
    return rig_.coordinator().RegisterServer(request, rig_.now()).status();
  }

  std::vector<std::string> Located() {
    const auto reply = rig_.coordinator().LocateServers(LocateServersRequest(), rig_.now());
    std::vector<std::string> addresses;
    for (const ServerAddress& place : reply->server()) {
      EXPECT_EQ(place.server_index(), static_cast<int>(addresses.size()));
      addresses.push_back(place.address());
    }
    return addresses;
  }

  Rig rig_;
  uint64_t job_id_ = 0;
};

TEST_F(ServerAddressesTest, ARegistrationOverridesTheWorkersAddresses) {
  EXPECT_THAT(Located(), IsEmpty());
  ASSERT_TRUE(Join(1, {"alpha:7000", "beta:7000"}).ok());
  EXPECT_THAT(Located(), ElementsAre("alpha:7000", "beta:7000"));
  ASSERT_TRUE(Register(1, 5, "gamma:7000").ok());
  EXPECT_THAT(Located(), ElementsAre("alpha:7000", "gamma:7000"));
  ASSERT_TRUE(Join(2, {"alpha:7001", "beta:7000"}).ok());
  EXPECT_THAT(Located(), ElementsAre("alpha:7001", "gamma:7000"));

  const JobStatus status = rig_.Status();
  ASSERT_EQ(status.server_size(), 2);
  EXPECT_EQ(status.server(0).server_incarnation(), 0u);
  EXPECT_EQ(status.server(1).server_incarnation(), 5u);
  EXPECT_EQ(status.server(1).address(), "gamma:7000");
  EXPECT_THAT(rig_.coordinator().Save(rig_.now()).server_address(),
              ElementsAre("alpha:7001", "gamma:7000"))
      << "used for checkpoint requests";
}

TEST_F(ServerAddressesTest, AnEmptyAddressChangesNothing) {
  ASSERT_TRUE(Join(1, {"alpha:7000", "beta:7000"}).ok());
  ASSERT_TRUE(Join(2, {"alpha:7000", ""}).ok());
  EXPECT_THAT(Located(), ElementsAre("alpha:7000", "beta:7000"));
}

TEST_F(ServerAddressesTest, KeepsAddressesAfterARestart) {
  ASSERT_TRUE(Join(1, {"alpha:7000", "beta:7000"}).ok());
  ASSERT_TRUE(Register(1, 5, "gamma:7000").ok());
  ASSERT_TRUE(rig_.Restart().ok());
  EXPECT_THAT(Located(), ElementsAre("alpha:7000", "gamma:7000"));
  ASSERT_TRUE(Register(1, 5, "gamma:7000").ok());
  EXPECT_EQ(rig_.Status().server(1).server_incarnation(), 5u);
}

TEST_F(ServerAddressesTest, AResumedJobForgetsTheAddresses) {
  ASSERT_TRUE(Join(1, {"alpha:7000", "beta:7000"}).ok());
  ASSERT_TRUE(Register(1, 5, "gamma:7000").ok());
  ASSERT_TRUE(rig_.Restart(JobCoordinator::Return::kResume).ok());
  EXPECT_THAT(Located(), IsEmpty());
  EXPECT_TRUE(absl::IsFailedPrecondition(Register(1, 5, "gamma:7000")))
      << "the number of servers is not known yet";
}

TEST_F(ServerAddressesTest, OnlyANewAddressChangesTheState) {
  ASSERT_TRUE(Join(1, {"alpha:7000", "beta:7000"}).ok());
  const uint64_t before = rig_.coordinator().revision();
  ASSERT_TRUE(Register(1, 5, "gamma:7000").ok());
  const uint64_t after = rig_.coordinator().revision();
  EXPECT_GT(after, before);
  ASSERT_TRUE(Register(1, 5, "gamma:7000").ok());
  EXPECT_EQ(rig_.coordinator().revision(), after);
}

TEST_F(ServerAddressesTest, RejectsServersOfAnotherJobAndUnknownServers) {
  EXPECT_TRUE(absl::IsFailedPrecondition(Register(1, 5, "gamma:7000"))) << "there is no job";
  ASSERT_TRUE(Join(1, {"alpha:7000", "beta:7000"}).ok());
  for (const int index : {-1, 2}) {
    const absl::Status unknown = Register(index, 5, "gamma:7000");
    EXPECT_TRUE(absl::IsFailedPrecondition(unknown));
    EXPECT_THAT(std::string(unknown.message()), HasSubstr("there is no server"));
  }
  for (const char* address : {"", "gamma", "file:/etc/passwd:1", "gamma:7000\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Register(1, 5, address))) << address;
  }
  ++job_id_;
  EXPECT_TRUE(absl::IsFailedPrecondition(Register(1, 5, "gamma:7000")));
  EXPECT_THAT(Located(), ElementsAre("alpha:7000", "beta:7000"));
}

}  // namespace
}  // namespace torchps
