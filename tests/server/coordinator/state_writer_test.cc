#include "torchps/server/coordinator/state_writer.h"

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StateWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = CoordinatorStore::Open(&files_, "/data");
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    Begin(/*has_state=*/false);
  }

  void Begin(bool has_state) {
    writer_ = nullptr;
    StateWriter::Options options;
    options.store = store_.get();
    options.has_state = has_state;
    options.snapshot = [this] {
      if (during_snapshot_ != nullptr) std::exchange(during_snapshot_, nullptr)();
      CoordinatorState state;
      state.set_job_id(1);
      state.set_revision(revision_);
      return state;
    };
    options.synced = [this](uint64_t revision) { last_synced_ = revision; };
    options.log = [this](const std::string& line) {
      MutexLock lock(&mutex_);
      lines_.push_back(line);
    };
    options.clock = &clock_;
    options.pause = absl::Milliseconds(20);
    writer_ = std::make_unique<StateWriter>(std::move(options));
  }

  // Returns an answer that records, when it is delivered, which revision is stored.
  StateWriter::Answers Answer() {
    return {[this](const StateWriter::Kept& kept) {
      {
        MutexLock lock(&mutex_);
        kept_ = kept.job;
        kept_incarnations_ = kept.incarnations;
      }
      const auto state = store_->Load();
      stored_when_given_ =
          state.ok() && state->has_value() ? static_cast<int64_t>((*state)->revision()) : -1;
    }};
  }
  // Gives the writer an answer that needs a synced `revision`. Returns false if the answer is not
  // delivered.
  bool HoldsAndGives(uint64_t revision) {
    stored_when_given_ = -2;
    writer_->Hold(revision, revision, Answer());
    return Eventually([this] { return stored_when_given_ != -2; });
  }
  absl::Status kept() {
    MutexLock lock(&mutex_);
    return kept_;
  }
  absl::Status kept_incarnations() {
    MutexLock lock(&mutex_);
    return kept_incarnations_;
  }
  void FillDisk() {
    files_.SetFaultHook([](FaultyFileSystem::Operation operation,
                           const std::string&) -> std::optional<FaultyFileSystem::Fault> {
      if (operation != FaultyFileSystem::Operation::kWrite) return std::nullopt;
      return FaultyFileSystem::Fault{ENOSPC, 0};
    });
  }
  int64_t Stored() const {
    const auto state = store_->Load();
    return state.ok() && state->has_value() ? static_cast<int64_t>((*state)->revision()) : -1;
  }
  std::vector<std::string> lines() {
    MutexLock lock(&mutex_);
    return lines_;
  }

  FaultyFileSystem files_;
  SteadyClock clock_;
  std::unique_ptr<CoordinatorStore> store_;
  std::function<void()> during_snapshot_;  // called in the next snapshot only
  std::atomic<uint64_t> revision_{0};
  std::atomic<uint64_t> last_synced_{0};
  std::atomic<int64_t> stored_when_given_{-2};
  Mutex mutex_;
  absl::Status kept_;
  absl::Status kept_incarnations_;
  std::vector<std::string> lines_;
  std::unique_ptr<StateWriter> writer_;
};

TEST_F(StateWriterTest, DeliversAnAnswerOnceItsStateIsStored) {
  revision_ = 5;
  writer_->Hold(5, 0, Answer());
  ASSERT_TRUE(Eventually([this] { return stored_when_given_ != -2; }));
  EXPECT_EQ(stored_when_given_, 5);
  stored_when_given_ = -2;
  writer_->Hold(5, 0, Answer());
  EXPECT_EQ(stored_when_given_, 5) << "a stored state needs no wait";
}

TEST_F(StateWriterTest, AnswersAVitalChangeOnlyAfterSyncingIt) {
  revision_ = 7;
  ASSERT_TRUE(HoldsAndGives(7));
  EXPECT_EQ(last_synced_, 7u);
  writer_ = nullptr;
  store_ = nullptr;
  files_.Crash(1);
  store_ = *CoordinatorStore::Open(&files_, "/data");
  EXPECT_EQ(Stored(), 7);
}

// Revision 9 needs a sync. It arrives during the snapshot for revision 8 and becomes part of it, so
// it is stored before it is synced.
TEST_F(StateWriterTest, DoesNotTreatAStoredStateAsSynced) {
  std::atomic<bool> was_synced{false};
  std::atomic<bool> given{false};
  during_snapshot_ = [&] {
    revision_ = 9;
    writer_->Hold(9, 9, {[&](const StateWriter::Kept&) {
                    was_synced = last_synced_ >= 9;
                    given = true;
                  }});
  };
  revision_ = 8;
  writer_->Hold(8, 0, Answer());
  ASSERT_TRUE(Eventually([&] { return given.load(); }));
  EXPECT_TRUE(was_synced);
}

TEST_F(StateWriterTest, SyncsStoredStatesAfterAPauseAndAtTheStop) {
  revision_ = 3;
  writer_->Hold(3, 0, Answer());
  ASSERT_TRUE(
      Eventually([this] { return ReadWholeFile(files_, "/data/coordinator.state", 1000).ok(); }));
  revision_ = 4;
  writer_->Hold(4, 0, Answer());
  writer_->Stop();
  EXPECT_EQ(stored_when_given_, 4);
  store_ = nullptr;
  files_.Crash(1);
  store_ = *CoordinatorStore::Open(&files_, "/data");
  EXPECT_EQ(Stored(), 4);
}

TEST_F(StateWriterTest, LogsAFullDiskOnceAndContinues) {
  Begin(/*has_state=*/true);
  FillDisk();
  for (const uint64_t revision : {1, 2, 3}) {
    revision_ = revision;
    stored_when_given_ = -2;
    writer_->Hold(revision, revision, Answer());
    ASSERT_TRUE(Eventually([this] { return stored_when_given_ != -2; }));
    EXPECT_EQ(stored_when_given_, -1);
    EXPECT_EQ(kept(), absl::OkStatus());
    EXPECT_EQ(last_synced_, 0u);
  }
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_THAT(lines()[0], HasSubstr("No space left on device"));
  files_.SetFaultHook(nullptr);
  ASSERT_TRUE(Eventually([this] { return lines().size() == 2; })) << "the writer retries by itself";
  EXPECT_EQ(lines()[1], "the coordinator saves its state again");
  EXPECT_TRUE(Eventually([this] { return last_synced_ == 3u; }));
  EXPECT_EQ(Stored(), 3);
}

TEST_F(StateWriterTest, RefusesAJobThatCannotBeSaved) {
  FillDisk();
  revision_ = 1;
  ASSERT_TRUE(HoldsAndGives(1));
  EXPECT_TRUE(absl::IsUnavailable(kept())) << kept();
  EXPECT_THAT(std::string(kept().message()), HasSubstr("No space left on device"));
  EXPECT_THAT(lines(), ElementsAre(std::string(kept().message())));
  files_.SetFaultHook(nullptr);
  // The next attempt succeeds. From then on disk errors do not stop the job.
  ASSERT_TRUE(HoldsAndGives(1));
  EXPECT_EQ(stored_when_given_, 1);
  EXPECT_EQ(kept(), absl::OkStatus());
  FillDisk();
  revision_ = 2;
  ASSERT_TRUE(HoldsAndGives(2));
  EXPECT_EQ(stored_when_given_, 1);
  EXPECT_EQ(kept(), absl::OkStatus());
  files_.SetFaultHook(nullptr);
}

TEST_F(StateWriterTest, AssignsNewIncarnationsOnlyAfterSavingARestoredState) {
  Begin(/*has_state=*/true);
  FillDisk();
  revision_ = 1;
  ASSERT_TRUE(HoldsAndGives(1));
  EXPECT_EQ(kept(), absl::OkStatus());
  EXPECT_TRUE(absl::IsUnavailable(kept_incarnations())) << kept_incarnations();
  EXPECT_THAT(std::string(kept_incarnations().message()), HasSubstr("No space left on device"));
  files_.SetFaultHook(nullptr);
  ASSERT_TRUE(HoldsAndGives(1));
  EXPECT_EQ(kept_incarnations(), absl::OkStatus());
  // The saved state reserves all incarnations that this process will assign.
  FillDisk();
  revision_ = 2;
  ASSERT_TRUE(HoldsAndGives(2));
  EXPECT_EQ(stored_when_given_, 1);
  EXPECT_EQ(kept_incarnations(), absl::OkStatus());
  files_.SetFaultHook(nullptr);
}

TEST_F(StateWriterTest, AfterStopAnswersAreUnavailable) {
  FillDisk();
  writer_->Stop();
  writer_->Hold(1, 1, Answer());
  ASSERT_NE(stored_when_given_, -2);
  EXPECT_TRUE(absl::IsUnavailable(kept())) << kept();
  EXPECT_TRUE(absl::IsUnavailable(kept_incarnations())) << kept_incarnations();
  files_.SetFaultHook(nullptr);
}

}  // namespace
}  // namespace torchps
