#include "torchps/program/pipeline/member_exchange.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/certificates.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/common/types.h"
#include "torchps/security/certificate_files.h"
#include "torchps/security/credentials.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

// Exchanges of the processes of one replica, over loopback.
class MemberExchangeTest : public ::testing::Test {
 protected:
  std::unique_ptr<MemberExchange> Listen(int stage, int stages,
                                         std::shared_ptr<CertificateFiles> certificates = nullptr,
                                         absl::Duration patience = absl::Seconds(60)) {
    MemberExchange::Options options;
    options.stage = stage;
    options.stages = stages;
    options.certificates = std::move(certificates);
    options.patience = patience;
    options.mailbox_bytes = 1 << 20;
    options.clock = &clock_;
    // Each exchange stands for one process, so each has its own latch.
    options.stop = &stops_[stage];
    absl::StatusOr<std::unique_ptr<MemberExchange>> listening =
        MemberExchange::Listen(std::move(options));
    EXPECT_TRUE(listening.ok()) << listening.status();
    return *std::move(listening);
  }

  static RendezvousRequest Words(int stage, int stages) {
    RendezvousRequest words;
    words.set_protocol_version(kProtocolVersion);
    words.set_stage(stage);
    words.set_stages(stages);
    words.set_nonce(100 + stage);
    words.set_train_samples(10);
    return words;
  }

  static void Connect(const std::vector<MemberExchange*>& members) {
    std::vector<std::string> addresses;
    for (MemberExchange* const member : members) addresses.push_back(member->address());
    for (MemberExchange* const member : members) member->Connect(addresses);
  }

  // Begins a meeting with the leader and one other process as members.
  static void Meet(MemberExchange* leader, MemberExchange* other) {
    std::thread comes([&] {
      const absl::StatusOr<RendezvousReply> met = other->Meet(Words(1, 2));
      ASSERT_TRUE(met.ok()) << met.status();
      EXPECT_EQ(met->slot(), 3);
    });
    const absl::StatusOr<std::vector<RendezvousRequest>> members = leader->Gather(Words(0, 2));
    EXPECT_TRUE(members.ok()) << members.status();
    RendezvousReply reply;
    reply.set_meeting(77);
    reply.set_slot(3);
    leader->Begin(reply);
    comes.join();
  }

  SteadyClock clock_;
  // Keyed by stage.
  std::map<int, StopLatch> stops_;
};

TEST_F(MemberExchangeTest, TensorsMoveFromStageToStage) {
  const auto leader = Listen(0, 2);
  const auto other = Listen(1, 2);
  Connect({leader.get(), other.get()});
  Meet(leader.get(), other.get());
  const torch::Tensor sent = torch::arange(12, torch::kFloat32).view({3, 4});
  TensorMessage parcel = Exchange::Of({TensorMessage::ACTIVATION, 1, 5});
  parcel.mutable_tensor()->set_wants_gradient(true);
  leader->Send(1, parcel, sent.t());
  const absl::StatusOr<Exchange::Delivery> taken =
      other->Take(0, {TensorMessage::ACTIVATION, 1, 5});
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_TRUE(torch::equal(taken->tensor, sent.t()));
  EXPECT_TRUE(taken->parcel.tensor().wants_gradient());
  other->Send(0, Exchange::Of({TensorMessage::GRADIENT, 1, 5}), torch::Tensor());
  const absl::StatusOr<Exchange::Delivery> none = leader->Take(1, {TensorMessage::GRADIENT, 1, 5});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->tensor.defined());
}

TEST_F(MemberExchangeTest, TheErrorOfAFailedMemberReachesTheOthers) {
  const auto leader = Listen(0, 2);
  const auto other = Listen(1, 2);
  Connect({leader.get(), other.get()});
  Meet(leader.get(), other.get());
  other->Fail(absl::InternalError("the disk is full"));
  const absl::Status heard = leader->Take(1, {TensorMessage::DONE, 1, 0}).status();
  EXPECT_TRUE(absl::IsUnavailable(heard)) << heard;
  EXPECT_THAT(std::string(heard.message()), HasSubstr("stage 1"));
  EXPECT_THAT(std::string(heard.message()), HasSubstr("the disk is full"));
}

// The other process may be waiting for a server, which waits for the part of a push that the failed
// process owes. Only a stop ends that wait.
TEST_F(MemberExchangeTest, AFailedMemberStopsTheOtherProcesses) {
  const auto leader = Listen(0, 2);
  const auto other = Listen(1, 2);
  Connect({leader.get(), other.get()});
  Meet(leader.get(), other.get());
  EXPECT_TRUE(leader->status().ok());
  EXPECT_FALSE(stops_[0].stopped());
  other->Fail(absl::InternalError("the disk is full"));
  while (!stops_[0].WaitFor(absl::Seconds(1))) {
  }
  EXPECT_THAT(stops_[0].reason(), HasSubstr("the disk is full"));
  EXPECT_EQ(stops_[0].reason(), std::string(leader->status().message()));
  EXPECT_TRUE(absl::IsUnavailable(leader->status())) << leader->status();
}

TEST_F(MemberExchangeTest, TakeFailsIfTheOtherMemberIsGone) {
  const auto leader = Listen(0, 2);
  const auto other = Listen(1, 2);
  Connect({leader.get(), other.get()});
  Meet(leader.get(), other.get());
  other->Break();
  leader->Send(1, Exchange::Of({TensorMessage::ORDER, 1, 0}));
  const absl::Status missed = leader->Take(1, {TensorMessage::DONE, 1, 0}).status();
  EXPECT_TRUE(absl::IsUnavailable(missed)) << missed;
  EXPECT_THAT(std::string(missed.message()), HasSubstr("is gone"));
}

// A sender makes each call once, so the replica ends and restarts.
TEST_F(MemberExchangeTest, TheReplicaEndsIfAMemberHasNoMemoryForAMessage) {
  const auto leader = Listen(0, 2);
  const auto other = Listen(1, 2);
  Connect({leader.get(), other.get()});
  Meet(leader.get(), other.get());
  for (int i = 0; i < 3; ++i) {
    leader->Send(1, Exchange::Of({TensorMessage::ACTIVATION, 1, i}), torch::ones({100000}));
  }
  for (MemberExchange* const member : {leader.get(), other.get()}) {
    const absl::Status ended =
        member->Take(1 - member->stage(), {TensorMessage::DONE, 1, 0}).status();
    EXPECT_TRUE(absl::IsUnavailable(ended)) << ended;
    EXPECT_THAT(std::string(ended.message()), HasSubstr("refused a message: its waiting messages"));
  }
}

TEST_F(MemberExchangeTest, RefusesAProcessWithOtherDataAndTellsItWhy) {
  const auto leader = Listen(0, 2, nullptr, /*patience=*/absl::Seconds(2));
  const auto other = Listen(1, 2);
  Connect({leader.get(), other.get()});
  std::thread comes([&] {
    RendezvousRequest words = Words(1, 2);
    words.set_train_samples(11);
    const absl::Status refused = other->Meet(words).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("training samples: 11"));
  });
  const absl::Status alone = leader->Gather(Words(0, 2)).status();
  EXPECT_TRUE(absl::IsUnavailable(alone)) << alone;
  EXPECT_THAT(std::string(alone.message()), HasSubstr("stage 1 at"));
  comes.join();
}

TEST_F(MemberExchangeTest, MembersWithWorkerCertificatesMeetOverTls) {
  const TestCertificates certificates;
  const auto files = certificates.Open(Role::kWorker);
  const auto leader = Listen(0, 2, files);
  const auto other = Listen(1, 2, files);
  Connect({leader.get(), other.get()});
  Meet(leader.get(), other.get());
}

TEST_F(MemberExchangeTest, BeyondLoopbackItListensOnlyWithCertificates) {
  MemberExchange::Options options;
  options.stages = 2;
  options.listen = "0.0.0.0:0";
  options.clock = &clock_;
  options.stop = &stops_[0];
  const absl::Status refused = MemberExchange::Listen(std::move(options)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--certs"));
}

}  // namespace
}  // namespace torchps
