// Tests a job that starts from blocks restored after a restart of the server.

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "torchps/common/hash.h"
#include "torchps/server/job/hosted_job.h"

namespace torchps {
namespace {

// Stores blocks in memory like a checkpoint, and records the journal's entries.
class MemoryStorage final : public JobStorage, public BlockJournal {
 public:
  struct Kept {
    BlockRange range;
    Version version = 0;
    std::vector<float> values;
    std::vector<std::vector<float>> slots;
    std::vector<LedgerEntry> ledger;
  };
  struct Told {
    BlockRecord::Kind kind;
    BlockId block;
    Version version;
    std::vector<SlotId> slots;
    bool operator==(const Told& other) const {
      return kind == other.kind && block == other.block && version == other.version &&
             slots == other.slots;
    }
  };

  // Stores one block.
  void Keep(HostedJob& job, size_t index) {
    const ManualClock clock;
    const std::unique_ptr<BlockCopy> copy = job.store().snapshot().MakeCopy();
    ASSERT_TRUE(job.store().snapshot().Capture(index, clock, copy.get()).ok());
    const BlockImage& image = copy->image();
    Kept& kept = kept_[image.range.id];
    kept.range = image.range;
    kept.version = image.version;
    kept.values.assign(image.values.begin(), image.values.end());
    kept.slots.clear();
    for (const auto& slot : image.slots) kept.slots.emplace_back(slot.begin(), slot.end());
    kept.ledger.assign(image.ledger.begin(), image.ledger.end());
  }
  void KeepAll(HostedJob& job) {
    for (size_t index = 0; index < job.store().owned(); ++index) Keep(job, index);
  }

  absl::StatusOr<std::optional<Origin>> Open(const JobShare&, ParameterStore* store) override {
    if (kept_.empty()) return std::optional<Origin>();
    for (const auto& [id, kept] : kept_) {
      BlockImage image;
      image.range = kept.range;
      image.version = kept.version;
      image.values = kept.values;
      for (const auto& slot : kept.slots) image.slots.push_back(slot);
      image.ledger = kept.ledger;
      const absl::Status restored = store->snapshot().Restore(image);
      if (!restored.ok()) return restored;
    }
    return std::optional<Origin>({/*checkpoint=*/5});
  }
  BlockJournal* journal() override { return journaling ? this : nullptr; }
  void Describe(DurabilityStatus* status) override { status->set_has_directory(true); }

  void Record(const Block& block, const BlockRecord& record) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) {
    told.push_back(
        {record.kind, block.range.id, block.version, {record.slots.begin(), record.slots.end()}});
  }
  void WhenDurable(std::function<void()> continuation) override {
    waiting.push_back(std::move(continuation));
  }

  std::map<BlockId, Kept>& kept() { return kept_; }
  bool journaling = false;
  std::vector<Told> told;
  std::vector<std::function<void()>> waiting;

 private:
  std::map<BlockId, Kept> kept_;
};

JobHarness::Options WithStorage(const std::string& job, JobStorage* storage = nullptr) {
  JobHarness::Options options;
  options.job = job;
  options.storage = storage;
  return options;
}

void EnterSlots(JobHarness& harness, int slots) {
  for (SlotId slot = 0; slot < slots; ++slot) ASSERT_TRUE(harness.Enter(slot, slot + 1).ok());
}

TEST(RestoreTest, RestoresValuesOptimizerSlotsVersionsAndLedgers) {
  const std::string job = "optimizer { adam {} } consistency { lag { policy: REJECT max_lag: 2 } }";
  JobHarness before(WithStorage(job));
  EnterSlots(before, 2);
  ASSERT_TRUE(before.Initialize(0, 1, 0.5f).ok());
  for (Step step = 1; step <= 5; ++step) {
    ASSERT_TRUE(before.Push(0, 1, step, 1.0f * step)->ok());
    ASSERT_TRUE(before.Push(1, 2, step, -2.0f, /*base=*/0)->ok());
  }
  MemoryStorage storage;
  storage.KeepAll(before.job());

  JobHarness after(WithStorage(job, &storage));
  MemoryStorage again;
  again.KeepAll(after.job());
  ASSERT_EQ(again.kept().size(), 2u);
  for (const auto& [id, kept] : storage.kept()) {
    const MemoryStorage::Kept& other = again.kept()[id];
    EXPECT_EQ(kept.version, other.version);
    EXPECT_EQ(kept.values, other.values);
    EXPECT_EQ(kept.slots, other.slots);
    EXPECT_TRUE(kept.ledger == other.ledger);
    EXPECT_EQ(kept.slots.size(), 2u);
  }
  // The next gradient has the same effect in both jobs.
  EnterSlots(after, 2);
  ASSERT_TRUE(before.Push(0, 1, 6, 3.0f)->ok());
  ASSERT_TRUE(after.Push(0, 1, 6, 3.0f)->ok());
  EXPECT_EQ(before.Value(0), after.Value(0));
}

TEST(RestoreTest, HelloReturnsTheRestoredSteps) {
  JobHarness before(WithStorage(""));
  EnterSlots(before, 2);
  ASSERT_TRUE(before.Initialize(0, 1, 0.0f).ok());
  MemoryStorage storage;
  ASSERT_TRUE(before.Push(0, 1, 1, 1.0f)->ok());
  storage.Keep(before.job(), 0);
  ASSERT_TRUE(before.Push(0, 1, 2, 1.0f)->ok());
  storage.Keep(before.job(), 1);
  ASSERT_TRUE(before.Push(0, 1, 3, 1.0f)->ok());

  JobHarness after(WithStorage("", &storage));
  const auto hello = after.Enter(0, 1);
  ASSERT_TRUE(hello.ok());
  EXPECT_TRUE(hello->initialized());
  ASSERT_TRUE(hello->has_restored());
  EXPECT_EQ(hello->restored().checkpoint(), 5u);
  ASSERT_EQ(hello->restored().block_step_size(), 2);
  EXPECT_EQ(hello->restored().block_step(0), 1);
  EXPECT_EQ(hello->restored().block_step(1), 2);
  EXPECT_EQ(hello->last_step(), 2);
  EXPECT_TRUE(after.Status().durability().has_directory());
  EXPECT_FALSE(JobHarness(WithStorage("")).Enter(0, 1)->has_restored());
}

TEST(RestoreTest, TheRestoredLedgerDetectsDuplicates) {
  JobHarness before(WithStorage(""));
  EnterSlots(before, 1);
  ASSERT_TRUE(before.Initialize(0, 1, 0.0f).ok());
  MemoryStorage storage;
  storage.Keep(before.job(), 0);
  ASSERT_TRUE(before.Push(0, 1, 1, 1.0f)->ok());
  storage.Keep(before.job(), 1);

  // Block 0 was saved before the push, block 1 after it. The worker got no answer and repeats the
  // push.
  JobHarness after(WithStorage("", &storage));
  EnterSlots(after, 1);
  const auto reply = after.Push(0, 1, 1, 1.0f, /*base=*/0);
  ASSERT_TRUE(reply->ok()) << reply->status();
  EXPECT_FALSE((*reply)->block(0).duplicate());
  EXPECT_TRUE((*reply)->block(1).duplicate() || after.Status().verdicts().duplicates() == 1);
  EXPECT_EQ(after.Value(0), -1.0f);
  EXPECT_EQ(after.Value(1), -1.0f);
}

TEST(RestoreTest, AGradientOnLostValuesHasNoLag) {
  JobHarness before(WithStorage("consistency { lag { policy: REJECT max_lag: 1 } }"));
  EnterSlots(before, 1);
  ASSERT_TRUE(before.Initialize(0, 1, 0.0f).ok());
  EXPECT_EQ(before.Frame(0, 1, 1, 0, 1.0f, /*base=*/7).code(), absl::StatusCode::kInvalidArgument);
  MemoryStorage storage;
  storage.KeepAll(before.job());
  JobHarness after(WithStorage("consistency { lag { policy: REJECT max_lag: 1 } }", &storage));
  EnterSlots(after, 1);
  const auto reply = after.Push(0, 1, 8, 1.0f, /*base=*/7);
  ASSERT_TRUE(reply->ok()) << reply->status();
  EXPECT_EQ((*reply)->block(0).verdict(), ACCEPTED);
  EXPECT_EQ((*reply)->block(0).lag(), 0);
}

TEST(RestoreTest, WaitsOneSlotLeaseForSlotsToReturn) {
  const std::string job = "consistency { staleness_bound: 0 } membership { lease_seconds: 10 }";
  JobHarness before(WithStorage(job));
  EnterSlots(before, 2);
  ASSERT_TRUE(before.Initialize(0, 1, 0.0f).ok());
  ASSERT_TRUE(before.Push(0, 1, 1, 1.0f)->ok());
  ASSERT_TRUE(before.Push(1, 2, 1, 1.0f)->ok());
  MemoryStorage storage;
  storage.KeepAll(before.job());

  JobHarness after(WithStorage(job, &storage));
  ASSERT_TRUE(after.Enter(0, 1).ok());
  EXPECT_TRUE(after.Pull(0, 1, 1)->granted);
  ASSERT_TRUE(after.Push(0, 1, 2, 1.0f)->ok());
  const auto waiting = after.Pull(0, 1, 2);
  EXPECT_FALSE(waiting->granted) << "slot 1 is expected back";
  ASSERT_TRUE(after.Enter(1, 2).ok());
  ASSERT_TRUE(after.Push(1, 2, 2, 1.0f)->ok());
  EXPECT_TRUE(waiting->granted);
  EXPECT_EQ(after.Status().slot_size(), 2);

  JobHarness alone(WithStorage(job, &storage));
  ASSERT_TRUE(alone.Enter(0, 1).ok());
  ASSERT_TRUE(alone.Push(0, 1, 2, 1.0f)->ok());
  const auto held = alone.Pull(0, 1, 2);
  EXPECT_FALSE(held->granted);
  EXPECT_EQ(alone.Status().slot_size(), 1) << "no row for a slot that did not return";
  alone.clock().Advance(absl::Seconds(6));
  ASSERT_TRUE(alone.job().Renew(0, 1).ok());
  alone.clock().Advance(absl::Seconds(6));
  alone.job().ExpireLeases();
  EXPECT_TRUE(held->granted) << "waits for at most a lease";
}

TEST(RestoreTest, ACheckpointExcludesTheOpenRound) {
  JobHarness before(WithStorage("consistency { mode: SYNC }"));
  EnterSlots(before, 2);
  ASSERT_TRUE(before.Initialize(0, 1, 0.0f).ok());
  before.Push(0, 1, 1, 1.0f, 0);
  MemoryStorage storage;
  storage.KeepAll(before.job());

  JobHarness after(WithStorage("consistency { mode: SYNC }", &storage));
  EnterSlots(after, 2);
  const auto first = after.Push(0, 1, 1, 1.0f, 0);
  ASSERT_TRUE(after.Push(1, 2, 1, 3.0f, 0)->ok());
  ASSERT_TRUE(first->ok());
  EXPECT_EQ(after.Value(0), -2.0f) << "the repeated gradient was not lost as a duplicate";
}

TEST(RestoreTest, ARestoredServerSkipsTheRoundsThatItLost) {
  JobHarness before(WithStorage("consistency { mode: SYNC }"));
  EnterSlots(before, 2);
  ASSERT_TRUE(before.Initialize(0, 1, 0.0f).ok());
  before.Push(0, 1, 1, 1.0f, 0);
  ASSERT_TRUE(before.Push(1, 2, 1, 1.0f, 0)->ok());
  MemoryStorage storage;
  storage.KeepAll(before.job());

  // Other servers are ahead: slot 0 pushes step 8, and slot 1 pulls after its step 7.
  JobHarness after(WithStorage("consistency { mode: SYNC }", &storage));
  EXPECT_EQ(after.Enter(0, 1)->last_step(), 1);
  EXPECT_EQ(after.Push(0, 1, 8, 1.0f, 7)->status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(after.Enter(1, 2).ok());
  const auto pulling = after.Pull(1, 2, 7);
  EXPECT_TRUE(pulling->granted);
  EXPECT_EQ(pulling->grant.min_clock, 7);
  const auto first = after.Push(0, 1, 8, 2.0f, 7);
  EXPECT_FALSE(first->ok()) << "it waits for slot 1";
  ASSERT_TRUE(after.Push(1, 2, 8, 4.0f, 7)->ok());
  ASSERT_TRUE(first->ok()) << first->status();
  EXPECT_EQ(after.Value(0), -4.0f);
  EXPECT_EQ(after.GetVersion(0), 8);
  EXPECT_EQ(after.Frame(0, 1, 11, 0, 1.0f, 8).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RestoreTest, BlocksSavedInDifferentRoundsContinueInTheSameRound) {
  JobHarness before(WithStorage("consistency { mode: SYNC }"));
  EnterSlots(before, 1);
  ASSERT_TRUE(before.Initialize(0, 1, 0.0f).ok());
  MemoryStorage storage;
  storage.Keep(before.job(), 0);
  for (Step step = 1; step <= 4; ++step) ASSERT_TRUE(before.Push(0, 1, step, 1.0f)->ok());
  storage.Keep(before.job(), 1);

  storage.journaling = true;
  JobHarness after(WithStorage("consistency { mode: SYNC }", &storage));
  EXPECT_EQ(after.GetVersion(0), 3) << "one behind, because the round may have been open";
  EXPECT_EQ(after.GetVersion(1), 4);
  ASSERT_EQ(storage.told.size(), 1u);
  EXPECT_EQ(storage.told[0].kind, BlockRecord::Kind::kPassed);
  EXPECT_EQ(storage.told[0].version, 3);
  EnterSlots(after, 1);
  EXPECT_TRUE(after.Pull(0, 1, 4)->granted);
  EXPECT_EQ(after.GetVersion(0), 4);
  after.Push(0, 1, 5, 1.0f);
  EXPECT_EQ(after.Value(0), -1.0f);
  EXPECT_EQ(after.Value(1), -5.0f);
}

TEST(RestoreTest, JournalsEveryChangeBeforeTheAnswer) {
  MemoryStorage storage;
  storage.journaling = true;
  JobHarness harness(WithStorage("consistency { lag { policy: REJECT max_lag: 1 } }", &storage));
  EnterSlots(harness, 1);
  ASSERT_TRUE(harness.Initialize(0, 1, 0.0f).ok());
  using Kind = BlockRecord::Kind;
  EXPECT_EQ(storage.told, (std::vector<MemoryStorage::Told>{{Kind::kInitial, 0, 0, {}},
                                                            {Kind::kInitial, 1, 0, {}}}));
  storage.told.clear();
  const auto reply = harness.Push(0, 1, 1, 1.0f);
  EXPECT_EQ(storage.told, (std::vector<MemoryStorage::Told>{{Kind::kGradient, 0, 1, {0}},
                                                            {Kind::kGradient, 1, 1, {0}}}));
  EXPECT_FALSE(reply->ok());
  EXPECT_EQ(harness.Status().verdicts().acknowledged(), 0u);
  ASSERT_EQ(storage.waiting.size(), 1u);
  storage.waiting[0]();
  EXPECT_TRUE(reply->ok());
  EXPECT_EQ(harness.Status().verdicts().acknowledged(), 2u);

  ASSERT_TRUE(harness.Frame(0, 1, 2, 0, 1.0f, 1).ok());
  ASSERT_TRUE(harness.Frame(0, 1, 3, 0, 1.0f, 2).ok());
  storage.told.clear();
  ASSERT_TRUE(harness.Frame(0, 1, 3, 0, 1.0f, 2).ok());
  EXPECT_TRUE(storage.told.empty()) << "a duplicate changes nothing";
  ASSERT_TRUE(harness.Frame(0, 1, 4, 0, 1.0f, 0).ok());
  ASSERT_TRUE(harness.Withhold(0, 1, 5, 0, 3).ok());
  EXPECT_EQ(storage.told, (std::vector<MemoryStorage::Told>{{Kind::kLedger, 0, 3, {0}},
                                                            {Kind::kLedger, 0, 3, {0}}}));
}

TEST(RestoreTest, JournalsASyncRoundWhenApplied) {
  MemoryStorage storage;
  storage.journaling = true;
  JobHarness harness(WithStorage("consistency { mode: SYNC }", &storage));
  EnterSlots(harness, 2);
  ASSERT_TRUE(harness.Initialize(0, 1, 0.0f).ok());
  storage.told.clear();
  harness.Push(0, 1, 1, 1.0f, 0);
  EXPECT_TRUE(storage.told.empty());
  harness.Push(1, 2, 1, 3.0f, 0);
  using Kind = BlockRecord::Kind;
  EXPECT_EQ(storage.told, (std::vector<MemoryStorage::Told>{{Kind::kGradient, 0, 1, {0, 1}},
                                                            {Kind::kGradient, 1, 1, {0, 1}}}));
}

TEST(RestoreTest, RejectsARestoredBlockOfAnotherShape) {
  JobHarness before(WithStorage(""));
  EnterSlots(before, 1);
  ASSERT_TRUE(before.Initialize(0, 1, 0.0f).ok());
  MemoryStorage storage;
  storage.KeepAll(before.job());
  storage.kept()[1].values.pop_back();
  ManualClock clock;
  const auto job = HostedJob::Create(JobHarness::Hello(WithStorage("")), &clock, &storage);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kDataLoss);
}

// Restarts a server in SYNC at random moments. The slots return in any order, in the middle of a
// push or a pull, and find blocks that were saved at any moment. No call may hang, no gradient may
// count twice, and each round must contain the slots that pushed for it.
TEST(RestoreTest, SyncNeverHangsAfterARestore) {
  const uint64_t seed = 20261122;
  SCOPED_TRACE(seed);
  uint64_t random = seed;
  for (int trial = 0; trial < 100; ++trial) {
    SCOPED_TRACE(trial);
    const int slots = 1 + static_cast<int>(UniformBelow(random, 4));
    const std::string job = "workers: " + std::to_string(slots) + " consistency { mode: SYNC }";
    struct Slot {
      Step pushed = 0;
      bool greeted = false;
      std::shared_ptr<absl::StatusOr<PushReply>> push;
      std::shared_ptr<JobHarness::Pulling> pull;
      bool has_values = false;
    };
    std::vector<Slot> state(slots);
    MemoryStorage storage;
    auto harness = std::make_unique<JobHarness>(WithStorage(job, &storage));
    EnterSlots(*harness, slots);
    ASSERT_TRUE(harness->Initialize(0, 1, 0.0f).ok());
    for (Slot& slot : state) slot.greeted = true;
    storage.KeepAll(harness->job());
    int incarnations = 0;
    int idle = 0;
    while (idle < 200 && incarnations < 6) {
      ++idle;
      if (UniformBelow(random, 25) == 0) {
        storage.Keep(harness->job(), UniformBelow(random, harness->job().store().owned()));
      }
      if (UniformBelow(random, 60) == 0) {
        harness = std::make_unique<JobHarness>(WithStorage(job, &storage));
        ++incarnations;
        for (Slot& slot : state) {
          slot.greeted = false;
          slot.pull = nullptr;
          slot.push = nullptr;
        }
      }
      const int i = static_cast<int>(UniformBelow(random, slots));
      Slot& slot = state[i];
      const Incarnation incarnation = i + 1;
      if (!slot.greeted) {
        ASSERT_TRUE(harness->Enter(i, incarnation).ok());
        slot.greeted = true;
        idle = 0;
      }
      if (!slot.has_values) {
        if (slot.pull == nullptr) slot.pull = harness->Pull(i, incarnation, slot.pushed);
        ASSERT_TRUE(slot.pull->refused.ok()) << slot.pull->refused;
        if (slot.pull->granted) {
          slot.pushed = std::max(slot.pushed, slot.pull->grant.min_clock);
          slot.has_values = true;
          slot.pull = nullptr;
          idle = 0;
        }
      } else {
        if (slot.push == nullptr || absl::IsUnavailable(slot.push->status())) {
          slot.push = harness->Push(i, incarnation, slot.pushed + 1, 1.0f);
        }
        if (slot.push->ok()) {
          ++slot.pushed;
          slot.has_values = false;
          slot.push = nullptr;
          idle = 0;
        } else {
          ASSERT_TRUE(absl::IsUnavailable(slot.push->status()) ||
                      absl::IsUnknown(slot.push->status()))
              << slot.push->status();
        }
      }
    }
    ASSERT_LT(idle, 200) << "deadlock: every slot waits";
  }
}

TEST(RestoreTest, RefusesAReplacedIncarnationAfterARestore) {
  JobHarness before(WithStorage(""));
  ASSERT_TRUE(before.Enter(0, 5).ok());
  ASSERT_TRUE(before.Initialize(0, 5, 0.0f).ok());
  ASSERT_TRUE(before.Push(0, 5, 1, 1.0f)->ok());
  ASSERT_TRUE(before.Enter(0, 7).ok());
  // The successor has pushed only one block. That is enough to recognize it after the restore.
  ASSERT_TRUE(before.Frame(0, 7, 2, /*block=*/1, 1.0f, 1).ok());
  MemoryStorage storage;
  storage.KeepAll(before.job());
  JobHarness after(WithStorage("", &storage));
  EXPECT_EQ(after.Enter(0, 5).status().code(), absl::StatusCode::kAborted);
  const auto hello = after.Enter(0, 7);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->restored().block_step(0), 0) << "step 1 belongs to another process";
  EXPECT_EQ(hello->restored().block_step(1), 2);
  EXPECT_EQ(hello->last_step(), 2);
}

TEST(RestoreTest, ASuccessorsPushIsNoRepeatOfItsPredecessorsStep) {
  for (const char* const job : {"", "consistency { mode: SYNC }"}) {
    SCOPED_TRACE(job);
    JobHarness before(WithStorage(job));
    ASSERT_TRUE(before.Enter(0, 5).ok());
    ASSERT_TRUE(before.Initialize(0, 5, 0.0f).ok());
    ASSERT_TRUE(before.Push(0, 5, 1, 1.0f)->ok());
    MemoryStorage storage;
    storage.KeepAll(before.job());
    ASSERT_TRUE(before.Enter(0, 7).ok());
    ASSERT_TRUE(before.Push(0, 7, 2, 16.0f)->ok());

    // The restored server has lost the successor's push. The predecessor, which was paused, returns
    // first.
    JobHarness after(WithStorage(job, &storage));
    ASSERT_TRUE(after.Enter(0, 5).ok());
    ASSERT_TRUE(after.Push(0, 5, 2, 4.0f)->ok());
    const auto hello = after.Enter(0, 7);
    ASSERT_TRUE(hello.ok()) << hello.status();
    for (const Step step : hello->restored().block_step()) {
      EXPECT_EQ(step, 0) << "lost steps reported as kept";
    }
    const bool synchronous = *job != '\0';
    const auto again = after.Push(0, 7, 2, 16.0f, /*base=*/1);
    ASSERT_TRUE(again->ok()) << again->status();
    EXPECT_EQ((*again)->block(0).verdict(), synchronous ? LATE : ACCEPTED);
    EXPECT_FALSE((*again)->block(0).duplicate());
    EXPECT_EQ(after.Value(0), synchronous ? -5.0f : -21.0f);
    EXPECT_EQ(after.Push(0, 5, 2, 4.0f)->status().code(), absl::StatusCode::kAborted);
  }
}

}  // namespace
}  // namespace torchps
