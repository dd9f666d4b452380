// Tests a job's blocks and their log: the replay restores the same bits, and a crash does not lose
// acknowledged changes.

#include "torchps/server/push_log/job_log.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/manual_clock.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/hash.h"
#include "torchps/server/store/block.h"
#include "torchps/server/store/job_storage.h"
#include "torchps/transport/encoding.h"
#include "torchps/transport/frame_payload.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;
using Operation = FaultyFileSystem::Operation;
using Fault = FaultyFileSystem::Fault;

// The contents of a block as stored in a checkpoint.
struct KeptBlock {
  BlockRange range;
  Version version = 0;
  std::vector<float> values;
  std::vector<std::vector<float>> slots;
  std::vector<LedgerEntry> ledger;
  std::vector<MissedRun> missed;
};

KeptBlock Keep(HostedJob& job, size_t index) {
  const ManualClock clock;
  const std::unique_ptr<BlockCopy> copy = job.store().snapshot().MakeCopy();
  EXPECT_TRUE(job.store().snapshot().Capture(index, clock, copy.get()).ok());
  const BlockImage& image = copy->image();
  KeptBlock kept;
  kept.range = image.range;
  kept.version = image.version;
  kept.values.assign(image.values.begin(), image.values.end());
  for (const auto& slot : image.slots) kept.slots.emplace_back(slot.begin(), slot.end());
  kept.ledger.assign(image.ledger.begin(), image.ledger.end());
  kept.missed.assign(image.missed.begin(), image.missed.end());
  return kept;
}

std::vector<KeptBlock> KeepAll(HostedJob& job) {
  std::vector<KeptBlock> kept;
  for (size_t index = 0; index < job.store().owned(); ++index) kept.push_back(Keep(job, index));
  return kept;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectSame(const std::vector<KeptBlock>& a, const std::vector<KeptBlock>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("block ", i));
    EXPECT_EQ(a[i].version, b[i].version);
    EXPECT_TRUE(SameBits(a[i].values, b[i].values));
    ASSERT_EQ(a[i].slots.size(), b[i].slots.size());
    for (size_t slot = 0; slot < a[i].slots.size(); ++slot) {
      EXPECT_TRUE(SameBits(a[i].slots[slot], b[i].slots[slot]));
    }
    EXPECT_EQ(a[i].missed, b[i].missed);
    ASSERT_EQ(a[i].ledger.size(), b[i].ledger.size());
    for (size_t slot = 0; slot < a[i].ledger.size(); ++slot) {
      LedgerEntry left = a[i].ledger[slot];
      LedgerEntry right = b[i].ledger[slot];
      // Acknowledging does not change the block and is not logged.
      left.acknowledged_step = right.acknowledged_step = 0;
      EXPECT_TRUE(left == right) << "slot " << slot;
    }
  }
}

// Stores a job: its log, and the blocks of a checkpoint that the test provides.
class LogStorage final : public JobStorage {
 public:
  explicit LogStorage(FaultyFileSystem* files) : files_(files) {}

  std::map<BlockId, KeptBlock> checkpoint;
  int64_t buffer_bytes = int64_t{32} << 20;
  absl::Status refused;

  absl::StatusOr<std::optional<Origin>> Open(const JobShare& share,
                                             ParameterStore* store) override {
    for (const auto& [id, kept] : checkpoint) {
      BlockImage image;
      image.range = kept.range;
      image.version = kept.version;
      image.values = kept.values;
      for (const auto& slot : kept.slots) image.slots.push_back(slot);
      image.ledger = kept.ledger;
      image.missed = kept.missed;
      if (absl::Status restored = store->snapshot().Restore(image); !restored.ok()) return restored;
    }
    JobLog::Options options;
    options.files = files_;
    options.clock = &clock;
    options.directory = "/ps/log-0-of-1";
    options.has_checkpoint = !checkpoint.empty();
    options.buffer_bytes = buffer_bytes;
    absl::StatusOr<std::unique_ptr<JobLog>> log = JobLog::Open(options, share, store);
    if (!log.ok()) {
      refused = log.status();
      return refused;
    }
    log_ = *std::move(log);
    if (!log_->existed() && checkpoint.empty()) return std::optional<Origin>();
    return std::optional<Origin>({/*checkpoint=*/0, /*from_log=*/true, log_->replayed()});
  }
  BlockJournal* journal() override { return log_.get(); }
  void Describe(DurabilityStatus* status) override { log_->Describe(status); }

  JobLog& log() { return *log_; }
  // Waits until the log so far is durable.
  bool AwaitDurable() {
    std::atomic<bool> durable{false};
    log_->WhenDurable([&] { durable = true; });
    return Eventually([&] { return durable.load(); });
  }

  ManualClock clock;

 private:
  FaultyFileSystem* const files_;
  std::unique_ptr<JobLog> log_;
};

JobHarness::Options Model(const std::string& job, JobStorage* storage) {
  JobHarness::Options options;
  options.trained = 100;
  options.averaged = 20;
  options.block_elements = 32;
  options.workers = 3;
  options.storage = storage;
  options.job = job;
  return options;
}

constexpr int kSlots = 3;

void EnterAll(JobHarness& harness) {
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    ASSERT_TRUE(harness.Enter(slot, static_cast<Incarnation>(slot + 1)).ok());
  }
}

// Pushes a frame with random elements in a random encoding.
absl::Status PushSome(JobHarness& harness, SlotId slot, Step step, const BlockRange& block,
                      Version base, uint64_t& random, bool withheld) {
  PushHeader header;
  header.slot = slot;
  header.incarnation = static_cast<Incarnation>(slot + 1);
  header.step = step;
  header.block = block.id;
  header.base_version = base;
  header.weight = 1 + static_cast<uint32_t>(UniformBelow(random, 4));
  header.progress = static_cast<uint32_t>(SplitMix64(random));
  header.withheld = withheld;
  if (withheld) return harness.job().PushFrame(header, FramePayload());
  // In some frames, some or all elements are absent.
  if (!block.averaged && UniformBelow(random, 3) == 0) {
    const auto begin = static_cast<int64_t>(UniformBelow(random, block.length));
    header.absent = {{begin, block.length}};
    if (begin > 1) header.absent.insert(header.absent.begin(), {0, begin / 2});
    if (UniformBelow(random, 4) == 0) {
      header.absent = {{0, block.length}};
      return harness.job().PushFrame(header, FramePayload());
    }
  }
  std::vector<float> elements(block.length);
  for (float& element : elements) {
    element = static_cast<float>(UnitDouble(SplitMix64(random)) - 0.5);
  }
  constexpr EncodingSpec::Kind kKinds[] = {EncodingSpec::FLOAT32, EncodingSpec::BFLOAT16,
                                           EncodingSpec::INT8, EncodingSpec::TOP_K};
  const EncodingSpec::Kind kind =
      block.averaged ? EncodingSpec::FLOAT32 : kKinds[UniformBelow(random, std::size(kKinds))];
  std::string bytes(EncodedBytes(kind, block.length, 0.25), '\0');
  Encode(kind, elements, 0.25, reinterpret_cast<uint8_t*>(&bytes[0]));
  return harness.job().PushFrame(header, FramePayload({grpc::Slice(bytes)}, 0, kind));
}

// The table of elements absent from one gradient fits in its frame. The table of elements absent
// from both gradients of the round is twice as long, and the log must record it.
TEST(JobLogTest, LogsMoreAbsentRunsOfARoundThanAFrameMayHave) {
  FaultyFileSystem files;
  LogStorage storage(&files);
  JobHarness::Options options;
  options.trained = 4 * static_cast<int64_t>(kMaxAbsentRuns);
  options.averaged = 0;
  options.block_elements = options.trained;
  options.workers = 2;
  options.storage = &storage;
  options.job = "consistency { mode: SYNC }";
  auto harness = std::make_unique<JobHarness>(options);
  for (SlotId slot = 0; slot < 2; ++slot) {
    ASSERT_TRUE(harness->Enter(slot, static_cast<Incarnation>(slot + 1)).ok());
  }
  ASSERT_TRUE(harness->Initialize(0, 1, 0.5f).ok());
  for (SlotId slot = 0; slot < 2; ++slot) {
    // Slot 0 pushes elements 0, 4, 8, ...; slot 1 pushes elements 2, 6, 10, ...
    PushHeader header;
    header.slot = slot;
    header.incarnation = static_cast<Incarnation>(slot + 1);
    header.step = 1;
    header.weight = 1;
    const int64_t reached = 2 * slot;
    int64_t begin = 0;
    for (int64_t next = reached; next < options.trained; next += 4) {
      AppendRun(begin, next, &header.absent);
      begin = next + 1;
    }
    AppendRun(begin, options.trained, &header.absent);
    if (header.absent.size() > kMaxAbsentRuns) {
      // A header holds kMaxAbsentRuns runs. The elements of the last run count as pushed.
      header.absent.pop_back();
    }
    const absl::Status pushed =
        harness->job().PushFrame(header, MakePayload(std::vector<float>(options.trained, 1.0f)));
    ASSERT_TRUE(pushed.ok()) << pushed;
  }
  EXPECT_EQ(harness->GetVersion(0), 1);
  ASSERT_TRUE(storage.AwaitDurable());
  const std::vector<KeptBlock> before = KeepAll(harness->job());
  EXPECT_GT(before[0].missed.size(), kMaxAbsentRuns);
  harness = nullptr;
  JobHarness again(options);
  ExpectSame(KeepAll(again.job()), before);
}

class ReplayTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ReplayTest, RestoresTheSameBits) {
  const std::string job = GetParam();
  const bool synchronous =
      job.find("SYNC") != std::string::npos && job.find("ASYNC") == std::string::npos;
  int whole_checkpoints = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    uint64_t random = seed;
    FaultyFileSystem files;
    LogStorage storage(&files);
    auto harness = std::make_unique<JobHarness>(Model(job, &storage));
    EnterAll(*harness);
    ASSERT_TRUE(harness->Initialize(0, 1, 0.5f).ok());
    const std::vector<BlockRange> blocks = harness->job().map().blocks();
    std::map<BlockId, KeptBlock> checkpoint;
    uint64_t rotated = 0;
    for (Step step = 1; step <= 12; ++step) {
      if (step == 5) rotated = storage.log().Rotate();
      for (SlotId slot = 0; slot < kSlots; ++slot) {
        for (const BlockRange& block : blocks) {
          const Version now = harness->GetVersion(block.id);
          const Version base =
              std::max<Version>(0, now - static_cast<Version>(UniformBelow(random, 6)));
          const bool withheld = UniformBelow(random, 10) == 0;
          const absl::Status pushed = PushSome(*harness, slot, step, block, base, random, withheld);
          ASSERT_TRUE(pushed.ok()) << pushed;
          // The blocks of the checkpoint are copied at different times.
          if (step >= 5 && checkpoint.count(block.id) == 0 && UniformBelow(random, 8) == 0) {
            checkpoint[block.id] = Keep(harness->job(), block.id);
          }
        }
      }
      // In SYNC, slot 2 leaves and enters again between two steps.
      if (synchronous && step == 9) {
        harness->job().Leave(2, 3);
        ASSERT_TRUE(harness->Enter(2, 3).ok());
      }
    }
    ASSERT_TRUE(storage.AwaitDurable());
    const std::vector<KeptBlock> before = KeepAll(harness->job());
    EXPECT_GT(before[0].version, 3);
    // In SYNC, an element misses a step only if it is absent from the gradients of all slots.
    EXPECT_TRUE(synchronous || !before[0].missed.empty());

    harness = nullptr;
    LogStorage from_log(&files);
    harness = std::make_unique<JobHarness>(Model(job, &from_log));
    ExpectSame(KeepAll(harness->job()), before);
    EXPECT_TRUE(harness->job().store().initialized());

    const bool whole = checkpoint.size() == blocks.size();
    harness = nullptr;
    if (!whole) continue;
    ++whole_checkpoints;
    LogStorage from_both(&files);
    from_both.checkpoint = checkpoint;
    harness = std::make_unique<JobHarness>(Model(job, &from_both));
    ExpectSame(KeepAll(harness->job()), before);
    // The log's records from before the checkpoint are not needed.
    ASSERT_TRUE(from_both.log().DropThrough(rotated).ok());
    harness = nullptr;
    LogStorage truncated(&files);
    truncated.checkpoint = checkpoint;
    harness = std::make_unique<JobHarness>(Model(job, &truncated));
    ExpectSame(KeepAll(harness->job()), before);
    harness = nullptr;
    // Without the checkpoint the rest of the log cannot be replayed, and the job is refused.
    const auto refused = [&](LogStorage& lame) {
      const ManualClock clock;
      return HostedJob::Create(JobHarness::Hello(Model(job, &lame)), &clock, &lame).status();
    };
    LogStorage alone(&files);
    const absl::Status status = refused(alone);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  }
  EXPECT_GT(whole_checkpoints, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, ReplayTest,
    ::testing::Values("optimizer { sgd { momentum: 0.9 nesterov: true momentum_at: SERVER } "
                      "learning_rate: 0.1 }",
                      "optimizer { sgd { momentum: 0.9 momentum_at: WORKER } "
                      "learning_rate: 0.1 weight_decay: 0.1 }",
                      "optimizer { sgd { momentum: 0.9 momentum_at: DELAYED } "
                      "learning_rate: 0.1 weight_decay: 0.1 } "
                      "local { steps: 1 inner { learning_rate: 0.1 } }",
                      "optimizer { adam {} learning_rate: 0.1 weight_decay: 0.1 } "
                      "consistency { lag { policy: WEIGH free_lag: 1 } }",
                      "optimizer { adamw {} learning_rate: 0.1 weight_decay: 0.1 "
                      "schedule { shape: COSINE warmup_steps: 4 total_steps: 30 } } "
                      "consistency { lag { policy: REJECT max_lag: 2 } }",
                      "consistency { lag { policy: REJECT max_lag: 1 } }",
                      "optimizer { adam {} learning_rate: 0.1 schedule { shape: COSINE "
                      "warmup_steps: 4 total_steps: 30 by: SAMPLES } }",
                      "optimizer { adam {} learning_rate: 0.1 schedule { shape: COSINE "
                      "total_steps: 30 by: SAMPLES } } consistency { mode: SYNC }",
                      "optimizer { rmsprop { centered: true momentum: 0.5 } learning_rate: 0.01 }",
                      "optimizer { adagrad { initial_accumulator: 0.1 } learning_rate: 0.1 }",
                      "optimizer { adam {} learning_rate: 0.1 } consistency { mode: SYNC }",
                      "consistency { mode: SYNC backup_workers: 1 }"));

// Slots push integer gradients until they are acknowledged, while the machine crashes repeatedly.
// In the end each gradient must be applied exactly once.
TEST(JobLogTest, AppliesEachPushOnceDespiteCrashes) {
  int crashes = 0;
  int64_t repeats = 0;
#ifdef TORCHPS_TSAN
  constexpr uint64_t kSeeds = 3;
#else
  constexpr uint64_t kSeeds = 12;
#endif
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    uint64_t random = seed;
    const bool synchronous = seed % 3 == 0;
    const std::string job = synchronous ? "consistency { mode: SYNC }" : "";
    FaultyFileSystem files;
    // The last acknowledged step of each slot.
    std::vector<Step> acknowledged(kSlots, 0);
    double sum = 0;  // of the acknowledged gradients; in SYNC of the rounds' means
    constexpr Step kSteps = 25;
    const auto gradient = [](SlotId slot, Step step) {
      return static_cast<float>(1 + (7 * step + 3 * slot) % 5);
    };
    bool initialized = false;
    for (int life = 0; life < 400; ++life) {
      const bool last = *std::min_element(acknowledged.begin(), acknowledged.end()) == kSteps;
      // Each process writes a segment, and later ones read all segments at the start. So the power
      // fails later when there are more segments.
      const auto segments = files.List("/ps/log-0-of-1");
      const uint64_t reading = 4 * (segments.ok() ? segments->size() : 0);
      files.PowerOffAt(last ? INT32_MAX
                            : 1 + static_cast<int64_t>(UniformBelow(random, 50 + reading)));
      LogStorage storage(&files);
      const ManualClock clock;
      const JobHarness::Options model = Model(job, &storage);
      {
        // The power may fail while the job is opened.
        const auto tried = HostedJob::Create(JobHarness::Hello(model), &clock, &storage);
        if (!tried.ok()) {
          ASSERT_TRUE(absl::IsUnavailable(tried.status())) << tried.status();
          files.Crash(SplitMix64(random));
          ++crashes;
          continue;
        }
        HostedJob& hosted = **tried;
        const std::vector<BlockRange>& blocks = hosted.map().blocks();
        const auto off = [&] {
          DurabilityStatus status;
          storage.Describe(&status);
          return !status.trouble().empty();
        };
        for (SlotId slot = 0; slot < kSlots; ++slot) {
          HelloReply reply;
          ASSERT_TRUE(hosted.Enter(slot, slot + 1, &reply).ok());
          ASSERT_GE(reply.last_step(), acknowledged[slot]) << "an acknowledged push was lost";
        }
        if (last) {
          // The values are the sum of the acknowledged gradients.
          for (size_t index = 0; index < blocks.size(); ++index) {
            const KeptBlock kept = Keep(hosted, index);
            if (kept.range.averaged) continue;
            const auto expected = static_cast<float>(-sum);
            for (const float value : kept.values) ASSERT_NEAR(value, expected, 1e-3);
            if (!synchronous) {
              ASSERT_EQ(kept.version, kSlots * kSteps);
              for (const LedgerEntry& entry : kept.ledger) {
                ASSERT_EQ(entry.applied, static_cast<uint64_t>(kSteps));
              }
            }
          }
          break;
        }
        const auto push = [&](SlotId slot, Step step, float value, std::atomic<int>* answered) {
          for (const BlockRange& block : blocks) {
            PushHeader header;
            header.slot = slot;
            header.incarnation = static_cast<Incarnation>(slot + 1);
            header.step = step;
            header.block = block.id;
            header.base_version = 0;
            header.weight = 1;
            const absl::Status pushed =
                hosted.PushFrame(header, MakePayload(std::vector<float>(block.length, value)));
            ASSERT_TRUE(pushed.ok()) << pushed;
          }
          hosted.FinishPush(slot, slot + 1, step, [answered](const auto& reply) {
            EXPECT_TRUE(reply.ok()) << reply.status();
            ++*answered;
          });
        };
        std::atomic<int> answers{0};
        int asked = 0;
        const auto answered = [&] {
          return Eventually([&] { return answers == asked || off(); }) && answers == asked;
        };
        if (!initialized) {
          ++asked;
          push(0, 0, 0.0f, &answers);
          initialized = answered();
        }
        // The slots push until the power fails, at a random operation.
        while (initialized) {
          const bool round = synchronous;
          std::vector<SlotId> pushers;
          if (round) {
            pushers = {0, 1, 2};
          } else {
            pushers = {static_cast<SlotId>(UniformBelow(random, kSlots))};
            if (acknowledged[pushers[0]] == kSteps) pushers.clear();
          }
          if (round && acknowledged[0] == kSteps) break;
          if (*std::min_element(acknowledged.begin(), acknowledged.end()) == kSteps) break;
          for (const SlotId slot : pushers) {
            const Step step = acknowledged[slot] + 1;
            ++asked;
            ++repeats;
            push(slot, step, gradient(slot, step), &answers);
          }
          if (!answered()) break;
          double added = 0;
          for (const SlotId slot : pushers) added += gradient(slot, ++acknowledged[slot]);
          sum += round ? added / kSlots : added;
        }
      }
      files.Crash(SplitMix64(random));
      ++crashes;
    }
    EXPECT_EQ(*std::min_element(acknowledged.begin(), acknowledged.end()), kSteps);
  }
  std::printf("%d crashes, %ld pushes\n", crashes, static_cast<long>(repeats));
}

TEST(JobLogTest, AnswersWaitWhileTheDiskIsFull) {
  FaultyFileSystem files;
  LogStorage storage(&files);
  storage.buffer_bytes = 4096;
  JobHarness harness(Model("", &storage));
  EnterAll(harness);
  ASSERT_TRUE(harness.Initialize(0, 1, 0.0f).ok());
  ASSERT_TRUE(storage.AwaitDurable());
  std::atomic<bool> full{true};
  files.SetFaultHook([&](Operation operation, const std::string&) -> std::optional<Fault> {
    if (operation == Operation::kWrite && full) return Fault{ENOSPC, 100};
    return std::nullopt;
  });
  std::atomic<int> answered{0};
  constexpr Step kSteps = 20;
  for (Step step = 1; step <= kSteps; ++step) {
    for (BlockId block = 0; block < harness.blocks(); ++block) {
      ASSERT_TRUE(harness.Frame(0, 1, step, block, 1.0f, harness.GetVersion(block)).ok());
    }
    harness.job().FinishPush(0, 1, step, [&](const auto& reply) {
      EXPECT_TRUE(reply.ok());
      ++answered;
    });
  }
  // The repeat of an applied push waits for the disk as well.
  ASSERT_TRUE(harness.Frame(0, 1, 1, 0, 1.0f, 0).ok());
  harness.job().FinishPush(0, 1, 1, [&](const auto&) { ++answered; });
  // The cancelled call is not answered, and the callback is released.
  const auto held = std::make_shared<int>(0);
  const HostedJob::ParkedId cancelled =
      harness.job().FinishPush(0, 1, 2, [held](const auto&) { FAIL(); });
  harness.job().CancelPush(cancelled);
  EXPECT_EQ(held.use_count(), 1);
  std::atomic<bool> room{false};
  const BlockJournal::RoomId waiting = harness.job().journal()->WhenRoom([&] { room = true; });
  EXPECT_NE(waiting, 0u) << "the buffer is full";
  ASSERT_TRUE(Eventually([&] { return !harness.Status().durability().trouble().empty(); }));
  EXPECT_THAT(harness.Status().durability().trouble(), HasSubstr("No space left"));
  EXPECT_EQ(answered, 0);
  EXPECT_FALSE(room);
  EXPECT_EQ(harness.Value(0), -kSteps) << "a pull returns unacknowledged updates";
  full = false;
  storage.clock.Advance(absl::Seconds(2));
  ASSERT_TRUE(Eventually([&] { return answered == kSteps + 1 && room; }));
  EXPECT_EQ(harness.Status().durability().trouble(), "");
  EXPECT_EQ(harness.job().journal()->WhenRoom([] {}), 0u);
}

}  // namespace
}  // namespace torchps
