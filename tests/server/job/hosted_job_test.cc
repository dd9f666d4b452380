#include "torchps/server/job/hosted_job.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "torchps/common/hash.h"
#include "torchps/common/types.h"
#include "torchps/server/store/block.h"
#include "torchps/server/store/store_snapshot.h"

namespace torchps {
namespace {

JobHarness::Options WithJob(const std::string& job, int workers = 2) {
  JobHarness::Options options;
  options.job = job;
  options.workers = workers;
  return options;
}

void EnterAll(JobHarness& harness, int slots) {
  for (SlotId slot = 0; slot < slots; ++slot) {
    ASSERT_TRUE(harness.Enter(slot, slot + 1).ok());
  }
  ASSERT_TRUE(harness.Initialize(0, 1, 0.0f).ok());
}

TEST(HostedJobTest, AppliesARepeatedPushOnce) {
  JobHarness harness(JobHarness::Options{});
  EnterAll(harness, 1);
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto reply = harness.Push(0, 1, 1, 1.0f, /*base=*/0);
    ASSERT_TRUE(reply->ok()) << reply->status();
    EXPECT_EQ((*reply)->block(0).duplicate(), repeat > 0);
    EXPECT_EQ((*reply)->block(0).version(), 1);
    EXPECT_EQ((*reply)->clock(), 1);
  }
  EXPECT_EQ(harness.Value(0), -1.0f);
  const ServerStatus status = harness.Status();
  EXPECT_EQ(status.verdicts().accepted(), 2u);
  EXPECT_EQ(status.verdicts().acknowledged(), 2u);
  EXPECT_EQ(status.verdicts().duplicates(), 4u);
}

TEST(HostedJobTest, ARetryCompletesAnInterruptedPush) {
  JobHarness harness(JobHarness::Options{});
  EnterAll(harness, 1);
  ASSERT_TRUE(harness.Frame(0, 1, 1, 0, 1.0f, 0).ok());
  EXPECT_EQ(harness.Value(0), -1.0f);
  EXPECT_EQ(harness.Value(1), 0.0f);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f, 0)->ok());
  EXPECT_EQ(harness.Value(0), -1.0f);
  EXPECT_EQ(harness.Value(1), -1.0f);
}

TEST(HostedJobTest, RejectsAPushWithMissingBlocks) {
  JobHarness harness(JobHarness::Options{});
  EnterAll(harness, 1);
  ASSERT_TRUE(harness.Frame(0, 1, 1, 0, 1.0f, 0).ok());
  absl::Status answer;
  harness.job().FinishPush(
      0, 1, 1, [&](const absl::StatusOr<PushReply>& reply) { answer = reply.status(); });
  EXPECT_EQ(answer.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(harness.Status().verdicts().acknowledged(), 0u);
}

// The ledger of a block has entries for the slots from 0 to the highest one that has pushed.
TEST(HostedJobTest, ASlotWithoutPushesHasNoLedgerEntry) {
  JobHarness harness(JobHarness::Options{});
  EnterAll(harness, 1);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f)->ok());
  const SlotId highest = kMaxSlots - 1;
  ASSERT_TRUE(harness.Enter(highest, 1).ok());
  absl::Status answer;
  harness.job().FinishPush(
      highest, 1, 1, [&](const absl::StatusOr<PushReply>& reply) { answer = reply.status(); });
  EXPECT_EQ(answer.code(), absl::StatusCode::kInvalidArgument) << "the push contains no block";
  StoreSnapshot& snapshot = harness.job().store().snapshot();
  snapshot.Histories();
  const std::unique_ptr<BlockCopy> copy = snapshot.MakeCopy();
  for (size_t index = 0; index < harness.blocks(); ++index) {
    ASSERT_TRUE(snapshot.Capture(index, harness.clock(), copy.get()).ok());
    EXPECT_EQ(copy->image().ledger.size(), 1u);
  }
}

TEST(HostedJobTest, RejectsAFrameFromAReplacedIncarnation) {
  JobHarness harness(JobHarness::Options{});
  EnterAll(harness, 1);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f)->ok());
  const auto hello = harness.Enter(0, 9);
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(hello->last_step(), 1);
  EXPECT_EQ(harness.Push(0, 1, 2, 1.0f)->status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(harness.Push(0, 9, 2, 1.0f)->ok());
  EXPECT_EQ(harness.Value(0), -2.0f);
}

// A worker that names more samples than its lease could have outweighs all other workers.
TEST(HostedJobTest, RejectsMoreSamplesThanASlotMayHold) {
  using ::testing::HasSubstr;
  for (const auto& [job, most] : std::vector<std::pair<std::string, uint32_t>>{
           {"training { batch_size: 8 } consistency { mode: SYNC }", 33},
           {"training { batch_size: 8 accumulate: 3 } consistency { mode: SYNC }", 99},
           {"training { batch_size: 8 global_batch: true } consistency { apply: WHOLE_BATCH }", 9},
           {"training { batch_size: 8 }", 33}}) {
    JobHarness::Options options;
    options.job = job;
    JobHarness harness(options);
    EnterAll(harness, 2);
    const absl::Status refused = harness.Frame(0, 1, 1, 0, 1.0f, 0, most + 1);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused << " with " << job;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(absl::StrCat("weight is ", most + 1, "; expected at most ", most)));
    PushHeader header;
    header.incarnation = 1;
    header.step = 1;
    header.weight = 1;
    header.share = most + 1;
    EXPECT_TRUE(absl::IsInvalidArgument(
        harness.job().PushFrame(header, MakePayload(std::vector<float>(16, 1.0f)))));
    EXPECT_TRUE(harness.Frame(0, 1, 1, 0, 1.0f, 0, most).ok());
  }
}

TEST(HostedJobTest, RejectsMalformedFramesWithoutSideEffects) {
  JobHarness harness(JobHarness::Options{});
  EnterAll(harness, 1);
  const auto code = [&](const PushHeader& header, int elements) {
    return harness.job().PushFrame(header, MakePayload(std::vector<float>(elements, 1.0f))).code();
  };
  PushHeader header;
  header.slot = 0;
  header.incarnation = 1;
  header.step = 1;
  header.weight = 1;
  PushHeader bad = header;
  bad.slot = -1;
  EXPECT_EQ(code(bad, 16), absl::StatusCode::kInvalidArgument);
  bad = header;
  bad.slot = kMaxSlots;
  EXPECT_EQ(code(bad, 16), absl::StatusCode::kInvalidArgument);
  bad = header;
  bad.block = 77;
  EXPECT_EQ(code(bad, 16), absl::StatusCode::kInvalidArgument);
  bad = header;
  bad.weight = 0;
  EXPECT_EQ(code(bad, 16), absl::StatusCode::kInvalidArgument);
  bad = header;
  bad.incarnation = 0;
  EXPECT_EQ(code(bad, 16), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(header, 15), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(header, 17), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(harness.Value(0), 0.0f);
  EXPECT_EQ(code(header, 16), absl::StatusCode::kOk);
}

TEST(HostedJobTest, RejectsANonfiniteNumberByElementAndSegment) {
  JobHarness harness(JobHarness::Options{});
  EnterAll(harness, 1);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), -HUGE_VALF}) {
    const absl::Status status = harness.Frame(0, 1, 1, 1, bad, 0);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("element 16 of segment 'w'"), std::string::npos) << status;
  }
  EXPECT_EQ(harness.Value(1), 0.0f);
}

TEST(HostedJobTest, InitialValuesDoNotOverwriteTrainedValues) {
  JobHarness harness(JobHarness::Options{});
  EnterAll(harness, 1);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f)->ok());
  ASSERT_TRUE(harness.Initialize(0, 1, 50.0f).ok());
  EXPECT_EQ(harness.Value(0), -1.0f);
}

TEST(HostedJobTest, AnAveragedBlockMovesByTheShareOfOneSlot) {
  JobHarness::Options options;
  options.averaged = 2;
  JobHarness harness(options);
  EnterAll(harness, 2);
  ASSERT_TRUE(harness.Push(0, 1, 1, 8.0f)->ok());
  EXPECT_EQ(harness.Value(2), 4.0f) << "two live slots: half of the difference";
  EXPECT_EQ(harness.Value(0), -8.0f);
}

TEST(HostedJobTest, APullBeyondTheBoundWaits) {
  JobHarness harness(WithJob("consistency { staleness_bound: 1 }"));
  EnterAll(harness, 2);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f)->ok());
  EXPECT_TRUE(harness.Pull(0, 1, 1)->granted);
  ASSERT_TRUE(harness.Push(0, 1, 2, 1.0f)->ok());
  const auto waiting = harness.Pull(0, 1, 2);
  EXPECT_FALSE(waiting->granted);
  harness.clock().Advance(absl::Seconds(3));
  ASSERT_TRUE(harness.Push(1, 2, 1, 1.0f)->ok());
  EXPECT_TRUE(waiting->granted);
  EXPECT_EQ(waiting->grant.parked, absl::Seconds(3));
  EXPECT_EQ(harness.Status().clock_gap().max(), 1);
}

TEST(HostedJobTest, APullWaitsByTheRecordedClockNotByTheClaimedOne) {
  JobHarness harness(WithJob("consistency { staleness_bound: 0 }"));
  EnterAll(harness, 2);
  ASSERT_TRUE(harness.Pull(0, 1, 0)->granted);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f)->ok());
  EXPECT_FALSE(harness.Pull(0, 1, /*claims=*/0)->granted);
}

TEST(HostedJobTest, RejectsAPullWithAnImpossibleClock) {
  JobHarness harness(WithJob("consistency { mode: SYNC }", 1));
  EnterAll(harness, 1);
  for (const Step clock :
       {std::numeric_limits<Step>::min(), Step{-1}, std::numeric_limits<Step>::max()}) {
    for (const bool ahead : {false, true}) {
      EXPECT_EQ(harness.Pull(0, 1, clock, ahead)->refused.code(),
                absl::StatusCode::kInvalidArgument)
          << clock;
    }
  }
  EXPECT_EQ(harness.GetVersion(0), 0);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f, 0)->ok());
  EXPECT_EQ(harness.Value(0), -1.0f);
}

TEST(HostedJobTest, ALeavingOrDeadSlotReleasesWaitingPulls) {
  JobHarness harness(
      WithJob("consistency { staleness_bound: 0 } membership { lease_seconds: 10 }", 3));
  EnterAll(harness, 3);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f)->ok());
  const auto waiting = harness.Pull(0, 1, 1);
  harness.job().Leave(1, 2);
  EXPECT_FALSE(waiting->granted) << "slot 2 still blocks the pull";
  harness.clock().Advance(absl::Seconds(6));
  ASSERT_TRUE(harness.job().Renew(0, 1).ok());
  harness.clock().Advance(absl::Seconds(5));
  harness.job().ExpireLeases();
  EXPECT_TRUE(waiting->granted);
  EXPECT_EQ(harness.Frame(2, 3, 1, 0, 1.0f, 0).code(), absl::StatusCode::kAborted)
      << "the dead slot must say Hello again";
}

TEST(HostedJobTest, AllowsMoreLiveSlotsThanWorkers) {
  JobHarness harness(WithJob("workers: 2"));
  EXPECT_EQ(harness.job().live_slots(), 0);
  EnterAll(harness, 5);
  EXPECT_EQ(harness.job().live_slots(), 5);
  harness.job().Leave(3, 4);
  EXPECT_EQ(harness.job().live_slots(), 4);
}

TEST(HostedJobTest, APushRenewsTheSlotsLease) {
  JobHarness harness(WithJob("membership { lease_seconds: 10 }"));
  EnterAll(harness, 1);
  harness.clock().Advance(absl::Seconds(8));
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f)->ok());
  harness.clock().Advance(absl::Seconds(8));
  harness.job().ExpireLeases();
  EXPECT_TRUE(harness.Push(0, 1, 2, 1.0f)->ok());
}

TEST(HostedJobTest, ForgetsACancelledPull) {
  JobHarness harness(WithJob("consistency { staleness_bound: 0 }"));
  EnterAll(harness, 2);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f)->ok());
  const auto waiting = harness.Pull(0, 1, 1);
  EXPECT_EQ(harness.Status().parked_now(), 1u);
  harness.job().CancelPull(waiting->parked);
  EXPECT_EQ(harness.Status().parked_now(), 0u);
  ASSERT_TRUE(harness.Push(1, 2, 1, 1.0f)->ok());
  EXPECT_FALSE(waiting->granted);
}

// Slots pull, push, leave, die and return in random order. The server must never grant a pull more
// than s steps ahead of the slowest live slot, and must not delay a pull within the bound.
TEST(HostedJobTest, StalenessBoundHoldsUnderRandomSchedules) {
  const uint64_t seed = 20261121;
  SCOPED_TRACE(seed);
  uint64_t random = seed;
  for (int trial = 0; trial < 60; ++trial) {
    const int slots = 2 + static_cast<int>(UniformBelow(random, 5));
    const int bound = static_cast<int>(UniformBelow(random, 5));
    SCOPED_TRACE(trial);
    JobHarness harness(
        WithJob("consistency { staleness_bound: " + std::to_string(bound) + " }", slots));
    EnterAll(harness, slots);

    struct Slot {
      Incarnation incarnation = 0;
      bool live = true;
      Step clock = 0;
      std::shared_ptr<JobHarness::Pulling> pulling;
    };
    std::vector<Slot> state(slots);
    for (int i = 0; i < slots; ++i) state[i].incarnation = i + 1;
    Incarnation next_incarnation = slots + 1;

    const auto min_clock = [&] {
      Step lowest = std::numeric_limits<Step>::max();
      for (const Slot& slot : state) {
        if (slot.live) lowest = std::min(lowest, slot.clock);
      }
      return lowest;
    };
    for (int event = 0; event < 300; ++event) {
      const int i = static_cast<int>(UniformBelow(random, slots));
      Slot& slot = state[i];
      if (!slot.live) {
        // The slot returns, sometimes as a new process.
        if (UniformBelow(random, 2) == 0) slot.incarnation = next_incarnation++;
        const auto hello = harness.Enter(i, slot.incarnation);
        ASSERT_TRUE(hello.ok()) << hello.status();
        slot.live = true;
        slot.clock = std::max(hello->min_clock(), hello->last_step());
        slot.pulling = nullptr;
      } else if (UniformBelow(random, 20) == 0 && slots > 2) {
        if (slot.pulling && !slot.pulling->granted) harness.job().CancelPull(slot.pulling->parked);
        harness.job().Leave(i, slot.incarnation);
        slot.live = false;
        slot.pulling = nullptr;
      } else if (slot.pulling == nullptr) {
        slot.pulling = harness.Pull(i, slot.incarnation, slot.clock);
        ASSERT_TRUE(slot.pulling->refused.ok()) << slot.pulling->refused;
      } else if (slot.pulling->granted) {
        ASSERT_TRUE(harness.Push(i, slot.incarnation, ++slot.clock, 1.0f)->ok());
        slot.pulling = nullptr;
      }
      const Step lowest = min_clock();
      for (const Slot& each : state) {
        if (!each.live || each.pulling == nullptr) continue;
        // When a slot leaves, the min clock does not decrease, so the test compares with the
        // server's min clock. That is never above the lowest clock of the live slots.
        ASSERT_LE(harness.Status().min_clock(), lowest);
        if (each.pulling->granted) {
          ASSERT_LE(each.clock - each.pulling->grant.min_clock, bound);
        } else {
          ASSERT_GT(each.clock - harness.Status().min_clock(), bound)
              << "waits although it is within the bound";
        }
      }
    }
    ASSERT_LE(harness.Status().clock_gap().max(), bound);
  }
}

// Like the test above, but the slots pull the values of the next step early, during the current
// step. An early pull must never block the slot's own push, because then the slots would wait for
// each other forever.
TEST(HostedJobTest, StalenessBoundHoldsForEarlyPulls) {
  const uint64_t seed = 20261120;
  SCOPED_TRACE(seed);
  uint64_t random = seed;
  for (int trial = 0; trial < 60; ++trial) {
    const int slots = 1 + static_cast<int>(UniformBelow(random, 5));
    const int bound = 1 + static_cast<int>(UniformBelow(random, 3));
    SCOPED_TRACE(trial);
    JobHarness harness(
        WithJob("consistency { staleness_bound: " + std::to_string(bound) + " }", slots));
    EnterAll(harness, slots);

    struct Slot {
      Step pushed = 0;
      bool has_values = false;
      Step claimed = 0;
      std::shared_ptr<JobHarness::Pulling> pulling;
    };
    std::vector<Slot> state(slots);
    for (int event = 0; event < 300; ++event) {
      const int i = static_cast<int>(UniformBelow(random, slots));
      Slot& slot = state[i];
      const Incarnation incarnation = i + 1;
      if (!slot.has_values) {
        if (slot.pulling == nullptr) {
          slot.claimed = slot.pushed;
          slot.pulling = harness.Pull(i, incarnation, slot.claimed);
        } else if (slot.pulling->granted) {
          slot.has_values = true;
          slot.pulling = nullptr;
        }
      } else if (slot.pulling == nullptr && UniformBelow(random, 3) > 0) {
        slot.claimed = slot.pushed + 1;
        slot.pulling = harness.Pull(i, incarnation, slot.claimed, /*ahead=*/true);
      } else {
        ASSERT_TRUE(harness.Push(i, incarnation, ++slot.pushed, 1.0f)->ok());
        slot.has_values = false;
      }
      Step lowest = std::numeric_limits<Step>::max();
      for (const Slot& each : state) lowest = std::min(lowest, each.pushed);
      ASSERT_EQ(harness.Status().min_clock(), lowest);
      bool anybody_can_move = false;
      for (const Slot& each : state) {
        if (each.has_values || each.pulling == nullptr || each.pulling->granted) {
          anybody_can_move = true;
        }
        if (each.pulling == nullptr) continue;
        ASSERT_TRUE(each.pulling->refused.ok()) << each.pulling->refused;
        if (each.pulling->granted) {
          ASSERT_LE(each.claimed - each.pulling->grant.min_clock, bound);
        } else {
          ASSERT_GT(each.claimed - lowest, bound) << "waits although it is within the bound";
        }
      }
      ASSERT_TRUE(anybody_can_move);
    }
    ASSERT_LE(harness.Status().clock_gap().max(), bound);
  }
}

TEST(HostedJobTest, AWithheldBlockKeepsItsValuesAndCountsAsPushed) {
  JobHarness harness(WithJob("", 1));
  EnterAll(harness, 1);
  ASSERT_TRUE(harness.Withhold(0, 1, 1, 0, 0).ok());
  ASSERT_TRUE(harness.Frame(0, 1, 1, 1, 2.0f, 0).ok());
  ASSERT_TRUE(harness.Withhold(0, 1, 1, 0, 0).ok()) << "a repeat is a duplicate";
  PushReply reply;
  harness.job().FinishPush(0, 1, 1, [&](const absl::StatusOr<PushReply>& result) {
    ASSERT_TRUE(result.ok()) << result.status();
    reply = *result;
  });
  EXPECT_EQ(reply.block(0).verdict(), WITHHELD);
  EXPECT_EQ(reply.block(1).verdict(), ACCEPTED);
  EXPECT_EQ(reply.clock(), 1);
  EXPECT_EQ(harness.Value(0), 0.0f);
  EXPECT_EQ(harness.GetVersion(0), 0);
  EXPECT_EQ(harness.Value(1), -2.0f);
  EXPECT_EQ(harness.Status().verdicts().withheld(), 1u);
  EXPECT_EQ(harness.Status().verdicts().duplicates(), 1u);
}

TEST(HostedJobTest, RejectsWithheldInitialValues) {
  JobHarness harness(WithJob("", 1));
  ASSERT_TRUE(harness.Enter(0, 1).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(harness.Withhold(0, 1, 0, 0, 0)));
}

TEST(HostedJobTest, AWithheldBlockHasNoWeightInSync) {
  JobHarness harness(WithJob("consistency { mode: SYNC }"));
  EnterAll(harness, 2);
  ASSERT_TRUE(harness.Withhold(0, 1, 1, 0, 0, /*weight=*/30).ok());
  ASSERT_TRUE(harness.Frame(0, 1, 1, 1, 1.0f, 0, /*weight=*/30).ok());
  ASSERT_TRUE(harness.Frame(1, 2, 1, 0, 5.0f, 0, /*weight=*/10).ok());
  ASSERT_TRUE(harness.Withhold(1, 2, 1, 1, 0, /*weight=*/10).ok());
  EXPECT_EQ(harness.Value(0), -5.0f);
  EXPECT_EQ(harness.Value(1), -1.0f);
  ASSERT_TRUE(harness.Withhold(0, 1, 2, 0, 1).ok());
  ASSERT_TRUE(harness.Withhold(1, 2, 2, 0, 1).ok());
  EXPECT_EQ(harness.Value(0), -5.0f) << "no slot pushed a gradient";
  EXPECT_EQ(harness.GetVersion(0), 2) << "the round is over";
}

TEST(HostedJobTest, SyncAppliesTheSampleWeightedMeanOnce) {
  JobHarness harness(WithJob("consistency { mode: SYNC }"));
  EnterAll(harness, 2);
  const auto first = harness.Push(0, 1, 1, 1.0f, 0, /*weight=*/30);
  EXPECT_FALSE(first->ok()) << "the round is not complete: not applied, so not acknowledged";
  EXPECT_EQ(harness.Value(0), 0.0f);
  const auto second = harness.Push(1, 2, 1, 5.0f, 0, /*weight=*/10);
  ASSERT_TRUE(first->ok()) << first->status();
  ASSERT_TRUE(second->ok()) << second->status();
  EXPECT_EQ(harness.Value(0), -2.0f);
  EXPECT_EQ(harness.GetVersion(0), 1);
}

TEST(HostedJobTest, ARepeatedSyncPushCountsOnce) {
  JobHarness harness(WithJob("consistency { mode: SYNC }"));
  EnterAll(harness, 2);
  const auto first = harness.Push(0, 1, 1, 1.0f, 0);
  const auto again = harness.Push(0, 1, 1, 1.0f, 0);
  EXPECT_EQ(harness.GetVersion(0), 0);
  ASSERT_TRUE(harness.Push(1, 2, 1, 3.0f, 0)->ok());
  EXPECT_TRUE(first->ok());
  EXPECT_TRUE(again->ok());
  EXPECT_EQ(harness.Value(0), -2.0f);
}

TEST(HostedJobTest, TheFramesOfAnInterruptedStreamCanCompleteARound) {
  JobHarness harness(WithJob("consistency { mode: SYNC }"));
  EnterAll(harness, 2);
  const auto first = harness.Push(0, 1, 1, 1.0f, 0);
  for (BlockId block = 0; block < harness.blocks(); ++block) {
    ASSERT_TRUE(harness.Frame(1, 2, 1, block, 1.0f, 0).ok());
  }
  EXPECT_TRUE(first->ok()) << first->status();
}

TEST(HostedJobTest, ARoundEndsWithoutTheSlowestAndItsPushIsLate) {
  JobHarness harness(WithJob("consistency { mode: SYNC backup_workers: 1 }", 3));
  EnterAll(harness, 3);
  harness.Push(0, 1, 1, 1.0f, 0);
  const auto second = harness.Push(1, 2, 1, 3.0f, 0);
  ASSERT_TRUE(second->ok()) << second->status();
  EXPECT_EQ(harness.Value(0), -2.0f);
  const auto late = harness.Push(2, 3, 1, 100.0f, 0);
  ASSERT_TRUE(late->ok());
  EXPECT_EQ((*late)->block(0).verdict(), LATE);
  EXPECT_EQ(harness.Value(0), -2.0f);
  EXPECT_EQ(harness.Status().verdicts().late(), 2u);
}

TEST(HostedJobTest, ARoundEndsAfterItsGraceTime) {
  JobHarness harness(WithJob("consistency { mode: SYNC backup_workers: 1 grace_part: 2 }", 3));
  std::vector<absl::Duration> wakes;
  harness.job().SetWake([&](absl::Duration delay) { wakes.push_back(delay); });
  EnterAll(harness, 3);
  const auto first = harness.Push(0, 1, 1, 1.0f, 0);
  EXPECT_TRUE(wakes.empty());
  harness.clock().Advance(absl::Milliseconds(10));
  const auto second = harness.Push(1, 2, 1, 3.0f, 0);
  ASSERT_EQ(wakes, std::vector<absl::Duration>{absl::Milliseconds(20)});
  EXPECT_FALSE(second->ok());
  harness.clock().Advance(absl::Milliseconds(19));
  harness.job().MakeDueUpdates();
  EXPECT_FALSE(second->ok());
  EXPECT_EQ(wakes.back(), absl::Milliseconds(1)) << "it was too early, so another wake follows";
  harness.clock().Advance(absl::Milliseconds(1));
  harness.job().MakeDueUpdates();
  ASSERT_TRUE(first->ok()) << first->status();
  ASSERT_TRUE(second->ok()) << second->status();
  EXPECT_EQ(harness.Value(0), -2.0f);
  EXPECT_EQ((*harness.Push(2, 3, 1, 100.0f, 0))->block(0).verdict(), LATE);
  // Once each slot has pushed, the round does not wait for the rest of the grace time.
  harness.Push(0, 1, 2, 1.0f, 1);
  harness.clock().Advance(absl::Milliseconds(10));
  harness.Push(1, 2, 2, 1.0f, 1);
  const auto last = harness.Push(2, 3, 2, 1.0f, 1);
  ASSERT_TRUE(last->ok()) << last->status();
  EXPECT_EQ(harness.GetVersion(0), 2);
}

TEST(HostedJobTest, ARenewalReturnsTheMinClockAndTheHighestVersion) {
  JobHarness harness(JobHarness::Options{});
  EnterAll(harness, 2);
  harness.Push(0, 1, 1, 1.0f);
  harness.Push(0, 1, 2, 1.0f);
  const absl::StatusOr<RenewReply> asynchronous = harness.job().Renew(1, 2);
  ASSERT_TRUE(asynchronous.ok()) << asynchronous.status();
  EXPECT_EQ(asynchronous->min_clock(), 0);
  EXPECT_EQ(asynchronous->max_version(), 2);
  JobHarness rounds(WithJob("consistency { mode: SYNC }"));
  EnterAll(rounds, 2);
  rounds.Push(0, 1, 1, 1.0f);
  EXPECT_EQ(rounds.job().Renew(1, 2)->min_clock(), 0);
  rounds.Push(1, 2, 1, 1.0f);
  EXPECT_EQ(rounds.job().Renew(1, 2)->min_clock(), 1);
  EXPECT_TRUE(absl::IsAborted(rounds.job().Renew(1, 1).status()));
}

TEST(HostedJobTest, ASyncRoundContinuesWithoutALeaver) {
  JobHarness harness(WithJob("consistency { mode: SYNC }", 3));
  EnterAll(harness, 3);
  const auto first = harness.Push(0, 1, 1, 1.0f, 0);
  const auto second = harness.Push(1, 2, 1, 3.0f, 0);
  EXPECT_FALSE(first->ok());
  harness.job().Leave(2, 3);
  EXPECT_TRUE(first->ok());
  EXPECT_TRUE(second->ok());
  EXPECT_EQ(harness.Value(0), -2.0f);
}

TEST(HostedJobTest, ASyncPullWaitsForTheRound) {
  JobHarness harness(WithJob("consistency { mode: SYNC }"));
  EnterAll(harness, 2);
  harness.Push(0, 1, 1, 1.0f, 0);
  const auto waiting = harness.Pull(0, 1, 1);
  EXPECT_FALSE(waiting->granted);
  EXPECT_EQ(harness.Frame(0, 1, 2, 0, 1.0f, 0).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(harness.Push(1, 2, 1, 1.0f, 0)->ok());
  EXPECT_TRUE(waiting->granted);
  EXPECT_EQ(waiting->grant.min_clock, 1);
}

// Another server may have finished the round that this server still collects. Slots that enter now
// start after that round on every server.
TEST(HostedJobTest, ARoundIgnoresASlotThatEnteredLater) {
  JobHarness harness(WithJob("consistency { mode: SYNC }"));
  EnterAll(harness, 2);
  harness.Push(0, 1, 1, 1.0f, 0);
  ASSERT_TRUE(harness.Enter(2, 3).ok());
  const auto waiting = harness.Pull(2, 3, /*clock=*/1);
  EXPECT_FALSE(waiting->granted);
  ASSERT_TRUE(harness.Push(1, 2, 1, 3.0f, 0)->ok()) << "round 1 waits for a slot that skips it";
  EXPECT_TRUE(waiting->granted);
  EXPECT_EQ(harness.Value(0), -2.0f);
  harness.Push(0, 1, 2, 1.0f, 1);
  harness.Push(1, 2, 2, 1.0f, 1);
  EXPECT_EQ(harness.GetVersion(0), 1) << "round 2 waits for it";
  ASSERT_TRUE(harness.Push(2, 3, 2, 1.0f, 1)->ok());
}

TEST(HostedJobTest, ARoundIgnoresADeadSlotsMissingBlocks) {
  JobHarness harness(WithJob("consistency { mode: SYNC }"));
  EnterAll(harness, 2);
  ASSERT_TRUE(harness.Frame(1, 2, 1, 0, 3.0f, 0).ok());  // one of two blocks
  EXPECT_EQ(harness.Enter(1, 9)->last_step(), 1);
  const auto waiting = harness.Pull(1, 9, /*clock=*/1);
  EXPECT_FALSE(waiting->granted);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f, 0)->ok());
  EXPECT_TRUE(waiting->granted);
  EXPECT_EQ(harness.Value(0), -2.0f) << "mean of both slots";
  EXPECT_EQ(harness.Value(1), -1.0f) << "only the live slot";
}

TEST(HostedJobTest, ARoundWaitsForTheRestOfARejoinedSlotsPush) {
  JobHarness harness(WithJob("consistency { mode: SYNC }"));
  EnterAll(harness, 2);
  ASSERT_TRUE(harness.Frame(1, 2, 1, 0, 3.0f, 0).ok());  // one of two blocks
  harness.job().Leave(1, 2);
  ASSERT_TRUE(harness.Enter(1, 2).ok());
  const auto first = harness.Push(0, 1, 1, 1.0f, 0);
  EXPECT_FALSE(first->ok()) << "the round ended without the rest";
  const auto second = harness.Push(1, 2, 1, 3.0f, 0);
  ASSERT_TRUE(first->ok());
  ASSERT_TRUE(second->ok()) << second->status();
  for (const BlockVerdict& block : (*second)->block()) EXPECT_EQ(block.verdict(), ACCEPTED);
  EXPECT_EQ(harness.Value(0), -2.0f);
  EXPECT_EQ(harness.Value(1), -2.0f);
}

// The only slot loses its lease while its push is incomplete, and enters again.
TEST(HostedJobTest, ASingleRejoinedSlotCompletesItsPush) {
  JobHarness harness(WithJob("consistency { mode: SYNC }", 1));
  EnterAll(harness, 1);
  ASSERT_TRUE(harness.Frame(0, 1, 1, 0, 1.0f, 0).ok());
  harness.job().Leave(0, 1);
  ASSERT_TRUE(harness.Enter(0, 1).ok());
  EXPECT_EQ(harness.GetVersion(1), 0) << "skipped a round with a pending push";
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f, 0)->ok());
  EXPECT_EQ(harness.Value(0), -1.0f);
  EXPECT_EQ(harness.Value(1), -1.0f);
}

TEST(HostedJobTest, APartialPushDoesNotRaiseTheMinClock) {
  JobHarness harness(WithJob("consistency { staleness_bound: 1 }"));
  EnterAll(harness, 2);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f)->ok());
  ASSERT_TRUE(harness.Push(0, 1, 2, 1.0f)->ok());
  ASSERT_TRUE(harness.Frame(1, 2, 1, 0, 1.0f, 0).ok());  // one of two blocks
  // Slot 2 enters at the min clock and keeps it there while slot 1 is away.
  ASSERT_TRUE(harness.Enter(2, 3).ok());
  harness.job().Leave(1, 2);
  ASSERT_TRUE(harness.Enter(1, 2).ok());
  harness.job().Leave(2, 3);
  EXPECT_FALSE(harness.Pull(0, 1, 2)->granted) << "slot 1 did not finish a step";
  ASSERT_TRUE(harness.Push(1, 2, 1, 1.0f, 0)->ok());
  EXPECT_TRUE(harness.Pull(0, 1, 2)->granted);
}

TEST(HostedJobTest, SkipsARoundThatHasNoGradient) {
  JobHarness harness(WithJob("consistency { mode: SYNC }", 1));
  EnterAll(harness, 1);
  harness.job().Leave(0, 1);
  ASSERT_TRUE(harness.Enter(0, 9).ok());
  const auto granted = harness.Pull(0, 9, /*clock=*/2);  // the clock of another server
  EXPECT_TRUE(granted->granted);
  EXPECT_EQ(harness.Value(0), 0.0f);
  ASSERT_TRUE(harness.Push(0, 9, 3, 1.0f, 2)->ok());
  EXPECT_EQ(harness.Value(0), -1.0f);
}

TEST(HostedJobTest, TheLearningRateFollowsTheBlockVersion) {
  JobHarness harness(WithJob("optimizer { schedule { shape: STEP step_size: 2 gamma: 0.5 } }"));
  EnterAll(harness, 2);
  float expected = 0;
  for (Step step = 1; step <= 3; ++step) {
    for (SlotId slot = 0; slot < 2; ++slot) {
      ASSERT_TRUE(harness.Push(slot, slot + 1, step, 1.0f)->ok());
    }
    // Each step applies two gradients. The learning rate is halved after every second version.
    expected -= 2.0f / (1 << (step - 1));
    EXPECT_FLOAT_EQ(harness.Value(0), expected) << step;
  }
}

TEST(HostedJobTest, RejectsALayoutThatDoesNotFitTheParameterGroups) {
  HelloRequest hello = JobHarness::Hello({});
  hello.mutable_job()->mutable_optimizer()->add_group()->set_pattern("w");
  ManualClock clock;
  EXPECT_EQ(HostedJob::Create(hello, &clock).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HostedJobTest, ErrorNamesTheFirstDifferenceFromTheJob) {
  const JobHarness::Options options;
  JobHarness harness(options);
  const HelloRequest same = JobHarness::Hello(options);
  EXPECT_TRUE(harness.job().CheckSame(same).ok());

  HelloRequest other = same;
  other.mutable_job()->mutable_optimizer()->set_learning_rate(0.5);
  absl::Status status = harness.job().CheckSame(other);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("learning_rate"), std::string::npos) << status;

  other = same;
  other.mutable_layout()->mutable_segment(0)->set_shape(0, 5);
  status = harness.job().CheckSame(other);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("'w' [5]"), std::string::npos) << status;

  other = same;
  other.set_server_index(1);
  other.set_server_count(2);
  status = harness.job().CheckSame(other);
  EXPECT_NE(status.message().find("number 0 of 1"), std::string::npos) << status;

  other = same;
  other.set_resumed_checkpoint(4);
  status = harness.job().CheckSame(other);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("as resumed from checkpoint 4"), std::string::npos) << status;
}

TEST(HostedJobTest, ASuccessorsPushIsNotADuplicate) {
  JobHarness harness(JobHarness::Options{});
  EnterAll(harness, 1);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f)->ok());
  ASSERT_TRUE(harness.Enter(0, 9).ok());
  const auto own = harness.Push(0, 9, 1, 10.0f);
  ASSERT_TRUE(own->ok()) << own->status();
  EXPECT_FALSE((*own)->block(0).duplicate());
  EXPECT_EQ(harness.Value(0), -11.0f);
  const auto repeat = harness.Push(0, 9, 1, 10.0f, /*base=*/1);
  ASSERT_TRUE(repeat->ok()) << repeat->status();
  EXPECT_TRUE((*repeat)->block(0).duplicate());
  EXPECT_EQ(harness.Value(0), -11.0f);
  const ServerStatus status = harness.Status(/*include_ledger=*/true);
  ASSERT_GT(status.ledger_size(), 0);
  for (const LedgerEntryStatus& row : status.ledger()) {
    EXPECT_EQ(row.incarnation(), 9u);
    EXPECT_EQ(row.applied(), 2u);
  }
  EXPECT_EQ(status.least_applied().at(0), 2u);
  ASSERT_TRUE(harness.Frame(0, 9, 2, 0, 1.0f, 2).ok());
  EXPECT_EQ(harness.Status().least_applied().at(0), 2u) << "block 1 does not have step 2 yet";
  EXPECT_EQ(harness.Status().least_applied().count(1), 0) << "slot 1 has not pushed";
}

// Two slots may have predecessors that were ahead at different servers. If each successor had to be
// as far as its predecessor, the two would wait for each other.
TEST(HostedJobTest, ASuccessorMayPullWithALowerClockThanItsPredecessor) {
  JobHarness harness(WithJob("consistency { staleness_bound: 0 }"));
  EnterAll(harness, 2);
  ASSERT_TRUE(harness.Push(0, 1, 1, 1.0f)->ok());
  ASSERT_FALSE(harness.Pull(0, 1, 1)->granted) << "slot 1 did not push step 1";
  ASSERT_TRUE(harness.Enter(0, 9).ok());
  EXPECT_TRUE(harness.Pull(0, 9, 0)->granted);
}

TEST(HostedJobTest, APushOfAReplacedIncarnationIsAborted) {
  JobHarness harness(JobHarness::Options{});
  EnterAll(harness, 1);
  // The push has two blocks, and the second one never arrives.
  ASSERT_TRUE(harness.Frame(0, 1, 1, 0, 1.0f, 0).ok());
  ASSERT_TRUE(harness.Enter(0, 9).ok());
  ASSERT_TRUE(harness.Push(0, 9, 1, 10.0f)->ok());
  absl::Status answer;
  harness.job().FinishPush(
      0, 1, 1, [&](const absl::StatusOr<PushReply>& reply) { answer = reply.status(); });
  EXPECT_EQ(answer.code(), absl::StatusCode::kAborted) << answer;
}

TEST(HostedJobTest, AReplacedSlotContributesOnceToARound) {
  JobHarness::Options options;
  options.job = "consistency { mode: SYNC }";
  JobHarness harness(options);
  EnterAll(harness, 2);
  ASSERT_TRUE(harness.Frame(0, 1, 1, /*block=*/0, 2.0f, 0).ok());
  ASSERT_TRUE(harness.Enter(0, 9).ok());
  // The successor's gradient for this step is another gradient. The step must not count both.
  EXPECT_EQ(harness.Frame(0, 9, 1, /*block=*/0, 8.0f, 0).code(), absl::StatusCode::kUnavailable);
  const auto other = harness.Push(1, 2, 1, 4.0f);
  EXPECT_FALSE(other->ok()) << "block 1 waits for slot 0";
  EXPECT_EQ(harness.Value(0), -3.0f);
  const auto own = harness.Push(0, 9, 1, 8.0f, /*base=*/0);
  ASSERT_TRUE(own->ok()) << own->status();
  ASSERT_TRUE(other->ok()) << other->status();
  EXPECT_EQ((*own)->block(0).verdict(), LATE);
  EXPECT_EQ(harness.Value(0), -3.0f);
  EXPECT_EQ((*own)->block(1).verdict(), ACCEPTED);
  EXPECT_EQ(harness.Value(1), -6.0f);
}

}  // namespace
}  // namespace torchps
