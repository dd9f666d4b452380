#include "torchps/server/coordinator/slot_registry.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SlotRegistry::Options TenSeconds() {
  SlotRegistry::Options options;
  options.lease = absl::Seconds(10);
  options.first_incarnation = 100;
  return options;
}

absl::Duration At(int seconds) { return absl::Seconds(seconds); }

TEST(SlotRegistryTest, AssignsTheLowestFreeSlotAndRisingIncarnations) {
  SlotRegistry registry(TenSeconds());
  EXPECT_EQ(*registry.Take(-1, 1, "a", At(0)), (SlotHolder{0, 100}));
  EXPECT_EQ(*registry.Take(2, 2, "b", At(0)), (SlotHolder{2, 101}));
  EXPECT_EQ(*registry.Take(-1, 3, "c", At(0)), (SlotHolder{1, 102}));
  EXPECT_EQ(*registry.Take(-1, 4, "d", At(0)), (SlotHolder{3, 103}));
}

TEST(SlotRegistryTest, TheSameNonceRenewsTheSameHolder) {
  SlotRegistry registry(TenSeconds());
  const SlotHolder first = *registry.Take(-1, 7, "a", At(0));
  EXPECT_EQ(*registry.Take(-1, 7, "a", At(9)), first);
  EXPECT_THAT(registry.Expire(At(18)), IsEmpty());
}

TEST(SlotRegistryTest, RefusalOfALiveSlotNamesItsHolder) {
  SlotRegistry registry(TenSeconds());
  ASSERT_TRUE(registry.Take(3, 1, "gpu7", At(0)).ok());
  const absl::Status refused = registry.Take(3, 2, "gpu8", At(4)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("slot 3 is held by a process on gpu7 (incarnation 100), whose lease runs "
                        "for another 6.0 s"));
}

TEST(SlotRegistryTest, OtherHolderReturnsNoHolderWithTheSameNonce) {
  SlotRegistry registry(TenSeconds());
  const SlotHolder holder = *registry.Take(3, 1, "a", At(0));
  EXPECT_EQ(registry.OtherHolder(3, 2), holder);
  EXPECT_EQ(registry.OtherHolder(3, 1), std::nullopt);
  EXPECT_EQ(registry.OtherHolder(2, 2), std::nullopt);
  EXPECT_EQ(registry.OtherHolder(-1, 2), std::nullopt);
}

TEST(SlotRegistryTest, AnExpiredSlotGetsAHigherIncarnation) {
  SlotRegistry registry(TenSeconds());
  const SlotHolder old = *registry.Take(0, 1, "a", At(0));
  EXPECT_THAT(registry.Expire(At(10)), ElementsAre(old));
  EXPECT_FALSE(registry.IsLive(old));
  const SlotHolder next = *registry.Take(0, 2, "b", At(10));
  EXPECT_EQ(next, (SlotHolder{0, 101}));
  EXPECT_EQ(registry.Renew(old, At(11)).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(registry.Renew(next, At(11)).ok());
}

TEST(SlotRegistryTest, AnExpiredProcessReturnsUnderANewIncarnation) {
  SlotRegistry registry(TenSeconds());
  const SlotHolder old = *registry.Take(-1, 1, "a", At(0));
  registry.Expire(At(20));
  const SlotHolder back = *registry.Take(-1, 1, "a", At(20));
  EXPECT_GT(back.incarnation, old.incarnation);
}

TEST(SlotRegistryTest, RenewingKeepsASlotAliveForAnotherLease) {
  SlotRegistry registry(TenSeconds());
  const SlotHolder holder = *registry.Take(-1, 1, "a", At(0));
  ASSERT_TRUE(registry.Renew(holder, At(6)).ok());
  EXPECT_THAT(registry.Expire(At(15)), IsEmpty());
  EXPECT_THAT(registry.Expire(At(16)), ElementsAre(holder));
}

TEST(SlotRegistryTest, LeavingFreesTheSlotAndEndsTheIncarnation) {
  SlotRegistry registry(TenSeconds());
  const SlotHolder left = *registry.Take(-1, 1, "a", At(0));
  registry.Leave(left);
  EXPECT_EQ(registry.Renew(left, At(1)).code(), absl::StatusCode::kAborted);
  const SlotHolder next = *registry.Take(-1, 2, "b", At(1));
  EXPECT_EQ(next.slot, 0);
  registry.Leave(left);
  EXPECT_TRUE(registry.IsLive(next)) << "an old incarnation ended a new one";
}

TEST(SlotRegistryTest, RejectsInvalidSlotNumbersAndZeroNonces) {
  EXPECT_TRUE(SlotRegistry::CheckWish(-1, 1).ok());
  EXPECT_TRUE(SlotRegistry::CheckWish(kMaxSlots - 1, 1).ok());
  EXPECT_EQ(SlotRegistry::CheckWish(-2, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SlotRegistry::CheckWish(kMaxSlots, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SlotRegistry::CheckWish(0, 0).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SlotRegistryTest, RejectsRenewalOfAnInvalidSlot) {
  SlotRegistry registry(TenSeconds());
  EXPECT_EQ(registry.Renew({-1, 1}, At(0)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(registry.Renew({kMaxSlots, 1}, At(0)).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SlotRegistryTest, RefusesAJoinWhenEverySlotIsTaken) {
  SlotRegistry registry(TenSeconds());
  for (SlotId slot = 0; slot < kMaxSlots; ++slot) {
    ASSERT_TRUE(registry.Take(slot, slot + 1, "a", At(0)).ok());
  }
  EXPECT_EQ(registry.Take(-1, kMaxSlots + 1, "a", At(0)).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace torchps
