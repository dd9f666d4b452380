#include "torchps/server/coordinator/coordinator_store.h"

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/faulty_file_system.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

CoordinatorState State(uint64_t revision, uint64_t job_id = 1) {
  CoordinatorState state;
  state.set_job_id(job_id);
  state.set_revision(revision);
  state.mutable_job()->set_name(std::string(3000, 'n'));
  return state;
}

std::unique_ptr<CoordinatorStore> Open(FileSystem& files) {
  absl::StatusOr<std::unique_ptr<CoordinatorStore>> store =
      CoordinatorStore::Open(&files, "/data/job");
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

// Returns the revision of the stored state, or 0 if there is none.
uint64_t Revision(const CoordinatorStore& store) {
  const auto state = store.Load();
  EXPECT_TRUE(state.ok()) << state.status();
  return state.ok() && state->has_value() ? (*state)->revision() : 0;
}

TEST(CoordinatorStoreTest, LoadsTheLastWrittenState) {
  FaultyFileSystem files;
  {
    const auto store = Open(files);
    EXPECT_EQ(Revision(*store), 0u);
    ASSERT_TRUE(store->Write(State(1), /*sync=*/true).ok());
    ASSERT_TRUE(store->Write(State(2), /*sync=*/false).ok());
    EXPECT_EQ(Revision(*store), 2u);
    ASSERT_TRUE(store->Write(State(3), /*sync=*/true).ok());
    EXPECT_EQ(Revision(*store), 3u);
  }
  EXPECT_EQ(Revision(*Open(files)), 3u);
}

TEST(CoordinatorStoreTest, LoadsTheLaterJobInTheSameDirectory) {
  FaultyFileSystem files;
  const auto store = Open(files);
  ASSERT_TRUE(store->Write(State(900, 1), /*sync=*/false).ok());
  ASSERT_TRUE(store->Write(State(1, 2), /*sync=*/true).ok());
  EXPECT_EQ((*store->Load())->job_id(), 2u);
}

TEST(CoordinatorStoreTest, LoadsTheStateWithTheHigherNextIncarnation) {
  FaultyFileSystem files;
  const auto store = Open(files);
  CoordinatorState unread = State(900);
  unread.set_next_incarnation(50);
  CoordinatorState later = State(2);
  later.set_next_incarnation(1000);
  ASSERT_TRUE(store->Write(unread, /*sync=*/false).ok());
  ASSERT_TRUE(store->Write(later, /*sync=*/true).ok());
  EXPECT_EQ(Revision(*store), 2u) << "otherwise incarnations would be reused";
}

TEST(CoordinatorStoreTest, RefusesASecondProcessInTheSameDirectory) {
  FaultyFileSystem files;
  const auto store = Open(files);
  const auto second = CoordinatorStore::Open(&files, "/data/job");
  EXPECT_TRUE(absl::IsUnavailable(second.status()));
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("another process is the coordinator in /data/job; --servers must list "
                        "that server first: "));
}

TEST(CoordinatorStoreTest, AfterAKillTheLastWrittenStateIsLoaded) {
  for (int64_t operation = 1;; ++operation) {
    SCOPED_TRACE(absl::StrCat("off at operation ", operation));
    FaultyFileSystem files;
    auto store = Open(files);
    ASSERT_TRUE(store->Write(State(1), /*sync=*/true).ok());
    files.FailNth(operation, {EIO, 0});
    const bool second = store->Write(State(2), /*sync=*/false).ok();
    const bool third = store->Write(State(3), /*sync=*/true).ok();
    files.FailNth(1000000, {EIO, 0});
    files.KillProcesses();
    store = nullptr;
    const uint64_t revision = Revision(*Open(files));
    EXPECT_GE(revision, third ? 3u : second ? 2u : 1u);
    if (second && third) {
      ASSERT_GT(operation, 3) << "nothing failed";
      return;
    }
  }
}

TEST(CoordinatorStoreTest, SyncReturnsTheRevisionThatAPowerCutWouldLeave) {
  FaultyFileSystem files;
  auto store = Open(files);
  EXPECT_TRUE(absl::IsNotFound(store->Sync().status()));
  ASSERT_TRUE(store->Write(State(1), /*sync=*/true).ok());
  ASSERT_TRUE(store->Write(State(2), /*sync=*/false).ok());
  const absl::StatusOr<uint64_t> synced = store->Sync();
  ASSERT_TRUE(synced.ok()) << synced.status();
  EXPECT_EQ(*synced, 1u);
}

TEST(CoordinatorStoreTest, AfterAPowerCutTheSyncedOrALaterStateIsLoaded) {
  for (int64_t operation = 1; operation < 14; ++operation) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(absl::StrCat("off at operation ", operation, ", seed ", seed));
      FaultyFileSystem files;
      auto store = Open(files);
      ASSERT_TRUE(store->Write(State(1), /*sync=*/true).ok());
      files.PowerOffAt(operation);
      store->Write(State(2), /*sync=*/false).IgnoreError();
      const bool synced = store->Write(State(3), /*sync=*/true).ok();
      store->Write(State(4), /*sync=*/false).IgnoreError();
      files.Crash(seed);
      store = nullptr;
      EXPECT_GE(Revision(*Open(files)), synced ? 3u : 1u);
    }
  }
}

TEST(CoordinatorStoreTest, ReportsADamagedState) {
  FaultyFileSystem files;
  const auto store = Open(files);
  ASSERT_TRUE(store->Write(State(1), /*sync=*/true).ok());
  ASSERT_TRUE(files.RemoveFile("/data/job/coordinator.recent").ok());
  for (const int64_t byte : {0, 9, 2000}) {
    files.FlipBit("/data/job/coordinator.state", byte, 3);
    const auto state = store->Load();
    EXPECT_TRUE(absl::IsDataLoss(state.status())) << byte;
    EXPECT_THAT(std::string(state.status().message()),
                HasSubstr("/data/job/coordinator.state is damaged"));
    files.FlipBit("/data/job/coordinator.state", byte, 3);
  }
  EXPECT_EQ(Revision(*store), 1u);
}

TEST(CoordinatorStoreTest, AnUnsyncedStateReplacesADamagedSyncedOne) {
  FaultyFileSystem files;
  const auto store = Open(files);
  ASSERT_TRUE(store->Write(State(1), /*sync=*/true).ok());
  ASSERT_TRUE(store->Write(State(2), /*sync=*/false).ok());
  ASSERT_TRUE(store->Write(State(3), /*sync=*/true).ok());
  files.FlipBit("/data/job/coordinator.state", 2000, 3);
  std::string damage;
  const auto state = store->Load(&damage);
  ASSERT_TRUE(state.ok() && state->has_value()) << state.status();
  EXPECT_EQ((*state)->revision(), 3u);
  EXPECT_THAT(damage, HasSubstr("/data/job/coordinator.state is damaged"));
  files.FlipBit("/data/job/coordinator.recent", 2000, 3);
  EXPECT_TRUE(absl::IsDataLoss(store->Load().status()));
}

}  // namespace
}  // namespace torchps
