#include "torchps/worker/pipeline/mailbox.h"

#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/common/stop_latch.h"
#include "torchps/worker/pipeline/exchange.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

TensorMessage ParcelFrom(int stage, const Exchange::Name& name, uint64_t meeting = 7) {
  TensorMessage parcel = Exchange::Of(name);
  parcel.set_from(stage);
  parcel.set_meeting(meeting);
  return parcel;
}

class MailboxTest : public ::testing::Test {
 protected:
  MailboxTest() { mailbox_.Open(7); }

  StopLatch stop_;
  Mailbox mailbox_{&stop_, /*max_bytes=*/1 << 20};
};

TEST_F(MailboxTest, MessagesAreTakenByNameInAnyOrder) {
  ASSERT_TRUE(mailbox_.Put(ParcelFrom(1, {TensorMessage::GRADIENT, 3, 1})).ok());
  ASSERT_TRUE(mailbox_.Put(ParcelFrom(1, {TensorMessage::GRADIENT, 3, 0})).ok());
  ASSERT_TRUE(mailbox_.Put(ParcelFrom(2, {TensorMessage::GRADIENT, 3, 0})).ok());
  EXPECT_EQ(mailbox_.Take(1, {TensorMessage::GRADIENT, 3, 0})->micro_batch(), 0);
  EXPECT_EQ(mailbox_.Take(2, {TensorMessage::GRADIENT, 3, 0})->from(), 2);
  EXPECT_EQ(mailbox_.Take(1, {TensorMessage::GRADIENT, 3, 1})->micro_batch(), 1);
}

TEST_F(MailboxTest, TakeWaitsForTheMessage) {
  std::thread other([this] {
    EXPECT_TRUE(mailbox_.Put(ParcelFrom(0, {TensorMessage::ORDER, 1, 0})).ok());
  });
  EXPECT_TRUE(mailbox_.Take(0, {TensorMessage::ORDER, 1, 0}).ok());
  other.join();
}

TEST_F(MailboxTest, RefusesAMessageOfAnotherMeetingAndADuplicate) {
  EXPECT_TRUE(
      absl::IsAborted(mailbox_.Put(ParcelFrom(0, {TensorMessage::ORDER, 1, 0}, /*meeting=*/8))));
  ASSERT_TRUE(mailbox_.Put(ParcelFrom(0, {TensorMessage::ORDER, 1, 0})).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(mailbox_.Put(ParcelFrom(0, {TensorMessage::ORDER, 1, 0}))));
  Mailbox closed(&stop_, /*max_bytes=*/1 << 20);
  EXPECT_TRUE(
      absl::IsAborted(closed.Put(ParcelFrom(0, {TensorMessage::ORDER, 1, 0}, /*meeting=*/0))))
      << "0 is not a valid meeting number";
}

TEST_F(MailboxTest, RefusesMessagesBeyondItsMemoryUntilSomeAreTaken) {
  const auto put = [this](int micro_batch) {
    TensorMessage parcel = ParcelFrom(0, {TensorMessage::ACTIVATION, 1, micro_batch});
    parcel.mutable_tensor()->set_type(TensorHeader::UINT8);
    parcel.mutable_tensor()->add_shape(300000);
    parcel.set_payload(std::string(300000, 'x'));
    return mailbox_.Put(std::move(parcel));
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(put(i).ok());
  const absl::Status refused = put(3);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("exceeds the limit of 1 MiB"));
  // Each round frees as much as it stores.
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(mailbox_.Take(0, {TensorMessage::ACTIVATION, 1, i}).ok());
    EXPECT_TRUE(put(i + 3).ok());
  }
  // Messages without a payload take memory, too.
  int empty = 0;
  while (empty < 2000 && mailbox_.Put(ParcelFrom(1, {TensorMessage::GRADIENT, 1, empty})).ok())
    ++empty;
  EXPECT_LT(empty, 2000);
}

TEST_F(MailboxTest, RefusesAnInvalidTensor) {
  TensorMessage parcel = ParcelFrom(0, {TensorMessage::ACTIVATION, 1, 0});
  parcel.set_payload("x");
  EXPECT_TRUE(absl::IsInvalidArgument(mailbox_.Put(parcel)));
  parcel.mutable_tensor()->set_type(TensorHeader::BOOL);
  EXPECT_TRUE(absl::IsInvalidArgument(mailbox_.Put(parcel))) << "'x' is not a boolean";
  parcel.set_payload(std::string(1, '\1'));
  EXPECT_TRUE(mailbox_.Put(parcel).ok());
}

TEST_F(MailboxTest, TheFirstFailureEndsWaitsButKeepsMessages) {
  ASSERT_TRUE(mailbox_.Put(ParcelFrom(0, {TensorMessage::ORDER, 1, 0})).ok());
  std::thread other([this] {
    EXPECT_TRUE(mailbox_.Fail(absl::UnavailableError("stage 1 is gone")));
    EXPECT_FALSE(mailbox_.Fail(absl::UnavailableError("stage 2 is gone")));
  });
  const absl::Status missed = mailbox_.Take(1, {TensorMessage::GRADIENT, 1, 0}).status();
  other.join();
  EXPECT_TRUE(absl::IsUnavailable(missed)) << missed;
  EXPECT_THAT(std::string(missed.message()), HasSubstr("stage 1"));
  EXPECT_TRUE(mailbox_.Take(0, {TensorMessage::ORDER, 1, 0}).ok());
}

TEST_F(MailboxTest, AStopEndsWaiting) {
  std::thread other([this] { stop_.Stop("the user"); });
  const absl::Status stopped = mailbox_.Take(0, {TensorMessage::ORDER, 1, 0}).status();
  other.join();
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
}

}  // namespace
}  // namespace torchps
