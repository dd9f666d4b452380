#include "client/residual_store.h"

#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/faulty_file_system.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kJob = 77;
constexpr SlotId kSlot = 3;
constexpr char kDirectory[] = "/kept/by/the/job";

class ResidualStoreTest : public ::testing::Test {
 protected:
  ResidualStore Store(uint64_t job = kJob, SlotId slot = kSlot) {
    return ResidualStore(&disk_, kDirectory, job, slot);
  }

  FaultyFileSystem disk_;
  const std::vector<float> residual_ = {0.5f, -3.0f, 0.0f, 1e-20f};
};

TEST_F(ResidualStoreTest, WhatWasSavedLastComesBackAfterAPowerCut) {
  ResidualStore store = Store();
  ASSERT_TRUE(store.Save(4, {1.0f, 2.0f, 3.0f, 4.0f}).ok());
  ASSERT_TRUE(store.Save(9, residual_).ok());
  disk_.Crash(/*seed=*/1);
  const auto loaded = Store().Load(4);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_TRUE(loaded->has_value());
  EXPECT_EQ((*loaded)->step, 9);
  EXPECT_EQ((*loaded)->residual, residual_);
}

TEST_F(ResidualStoreTest, NothingIsThereAtFirstOrOfAnotherJobOrSlotOrOnceRemoved) {
  EXPECT_FALSE(Store().Load(4)->has_value());
  EXPECT_TRUE(Store().Remove().ok());
  ASSERT_TRUE(Store().Save(9, residual_).ok());
  EXPECT_FALSE(Store(kJob + 1).Load(4)->has_value());
  EXPECT_FALSE(Store(kJob, kSlot + 1).Load(4)->has_value());
  EXPECT_TRUE(Store().Load(4)->has_value());
  EXPECT_TRUE(Store().Remove().ok());
  EXPECT_FALSE(Store().Load(4)->has_value());
}

TEST_F(ResidualStoreTest, AFullDiskLeavesWhatWasThere) {
  ASSERT_TRUE(Store().Save(4, residual_).ok());
  disk_.SetFaultHook([](FaultyFileSystem::Operation operation, const std::string&) {
    return operation == FaultyFileSystem::Operation::kWrite
               ? std::optional<FaultyFileSystem::Fault>({ENOSPC, 0})
               : std::nullopt;
  });
  const absl::Status saved = Store().Save(9, {1.0f, 2.0f, 3.0f, 4.0f});
  EXPECT_TRUE(absl::IsResourceExhausted(saved)) << saved;
  EXPECT_THAT(std::string(saved.message()), HasSubstr(Store().path()));
  disk_.SetFaultHook(nullptr);
  EXPECT_EQ((*Store().Load(4))->step, 4);
}

TEST_F(ResidualStoreTest, AnotherModelsResidualIsRefused) {
  ASSERT_TRUE(Store().Save(4, residual_).ok());
  const auto loaded = Store().Load(5);
  EXPECT_TRUE(absl::IsDataLoss(loaded.status())) << loaded.status();
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("not one tensor of 5 float32"));
}

// A damaged job or slot is that of another one, of which there is none; padding may be anything.
TEST_F(ResidualStoreTest, NoTurnedBitMakesItAnything) {
  ASSERT_TRUE(Store().Save(9, residual_).ok());
  const std::string path = Store().path();
  const std::string whole = *ReadWholeFile(disk_, path, 1 << 20);
  int refused = 0;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_TRUE(WriteFileAtomically(disk_, path, bytes).ok());
    const auto loaded = Store().Load(4);
    if (!loaded.ok()) ++refused;
    if (!loaded.ok() || !loaded->has_value()) continue;
    ASSERT_EQ((*loaded)->step, 9) << "bit " << bit;
    ASSERT_EQ((*loaded)->residual, residual_) << "bit " << bit;
  }
  EXPECT_GT(refused, 8 * 16) << "all bits of the numbers at least";
}

}  // namespace
}  // namespace torchps
