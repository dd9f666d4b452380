// Compares whole-batch updates with a second implementation in double that does not share code with
// the product. Three slots of different speeds push in random order: some gradients are one update
// late, some are rejected, and some updates are early. The push log must replay to the same bits. A
// server killed with half a batch collected must end with the same values. Prints the seed.

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"
#include "torchps/common/block_map.h"
#include "torchps/common/model_layout.h"
#include "torchps/server/push_log/log_record.h"
#include "torchps/server/push_log/replay.h"
#include "torchps/server/store/batch_push.h"

namespace torchps {
namespace {

constexpr int kSlots = 3;
constexpr int kBatch = 12;
constexpr int kUpdates = 120;
constexpr int kSize = 40;
constexpr uint64_t kSeed = 35;
constexpr double kRate = 0.02;
constexpr double kMomentum = 0.9;

// Gradient of `samples` samples, computed on version `base` and not pushed yet.
struct Flight {
  Step step = 0;
  Version base = 0;
  int samples = 0;
  std::vector<float> gradient;
};

// Returns a number in [-1, 1) that depends only on the arguments.
double Noise(uint64_t a, uint64_t b, uint64_t c) {
  std::mt19937_64 generator(kSeed + 1000003 * a + 10007 * b + c);
  return static_cast<double>(generator() >> 11) / 4503599627370496.0 - 1;
}

// Returns the gradient at `value` of a noisy quadratic with curvatures from 0.2 to 2.
double GradientAt(SlotId slot, Step step, int element, double value) {
  const double curvature = 1.1 + 0.9 * Noise(1, element, 0);
  return curvature * (value - Noise(2, element, 0)) + Noise(3 + slot, step, element);
}

double Start(int element) { return 3 * Noise(9, element, 0); }

// Computes the values by the documented rule, in double.
class Reference {
 public:
  Reference() : values_(kSize), momentum_(kSize), sum_(kSize) {
    for (int i = 0; i < kSize; ++i) values_[i] = Start(i);
    history_.push_back(values_);
  }

  // Adds the gradient to the sum for the next update.
  void Collect(SlotId slot, const Flight& flight) {
    for (int i = 0; i < kSize; ++i) {
      sum_[i] += flight.samples * GradientAt(slot, flight.step, i, history_[flight.base][i]);
    }
    samples_ += flight.samples;
  }

  // Makes an update. Missing samples count as a gradient of zero, but a single missing sample is
  // ignored.
  void Update() {
    const double divisor = samples_ >= kBatch - 1 ? samples_ : kBatch;
    for (int i = 0; i < kSize; ++i) {
      momentum_[i] = kMomentum * momentum_[i] + sum_[i] / divisor;
      values_[i] -= kRate * momentum_[i];
      sum_[i] = 0;
    }
    if (samples_ < kBatch - 1) ++early_;
    samples_ = 0;
    history_.push_back(values_);
  }

  int collected() const { return samples_; }
  int early() const { return early_; }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_, momentum_, sum_;
  std::vector<std::vector<double>> history_;  // the values of each version
  int samples_ = 0;
  int early_ = 0;
};

// Holds a server's blocks of 16 elements and a log.
class Server final : public BlockJournal {
 public:
  explicit Server(const ManualClock* clock) : clock_(clock) {
    Segment segment;
    segment.name = "weight";
    segment.shape = {kSize};
    layout_ = *ModelLayout::Create({segment});
    map_ = *BlockMap::Create(layout_, 64, 1);
    OptimizerSpec optimizer;
    optimizer.mutable_sgd()->set_momentum(kMomentum);
    optimizer.set_learning_rate(kRate);
    updater_ = *BlockUpdater::Create(optimizer, layout_, map_, kSlots);
    blocks_ = NewBlocks();
    Begin();
  }

  void Record(const Block& block, const BlockRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) override {
    LogRecord made;
    made.kind = record.kind == BlockRecord::Kind::kGradient ? LogKind::kGradient : LogKind::kLedger;
    made.sequence = log_.size() + 1;
    made.block = block.range.id;
    made.base_version = made.kind == LogKind::kGradient ? block.version - 1 : block.version;
    made.version = block.version;
    made.terms = record.terms;
    for (const SlotId slot : record.slots) made.ledger.push_back({slot, block.ledger[slot]});
    const FramePayload payload(
        {grpc::Slice(record.elements.data(), record.elements.size() * sizeof(float))}, 0,
        EncodingSpec::FLOAT32);
    std::vector<uint8_t> bytes(LogRecordBytes(made.ledger.size(), 0, payload.bytes()));
    WriteLogRecord(made, payload, bytes.data());
    SealLogRecord(/*salt=*/0, /*durable_sequence=*/0, bytes.data());
    log_.push_back(std::move(bytes));
  }
  void WhenDurable(std::function<void()> continuation) override { continuation(); }

  // Returns the verdict, which must be equal for all blocks.
  Verdict Push(SlotId slot, const Flight& flight) {
    Verdict verdict = VERDICT_UNSPECIFIED;
    for (const auto& block : blocks_) {
      PushHeader header;
      header.slot = slot;
      header.incarnation = 1;
      header.step = flight.step;
      header.block = block->range.id;
      header.base_version = flight.base;
      header.weight = static_cast<uint32_t>(flight.samples);
      const float* const first = flight.gradient.data() + block->range.offset;
      const FramePayload payload({grpc::Slice(first, block->range.length * sizeof(float))}, 0,
                                 EncodingSpec::FLOAT32);
      MutexLock lock(&block->mutex);
      const absl::StatusOr<PushDecision> decision = policy_->Push(block.get(), header, payload);
      EXPECT_TRUE(decision.ok()) << decision.status();
      if (!decision.ok()) return verdict;
      EXPECT_TRUE(verdict == VERDICT_UNSPECIFIED || verdict == decision->verdict);
      verdict = decision->verdict;
    }
    policy_->AwaitUpdate(slot, absl::Seconds(1), /*is_whole=*/false);
    return verdict;
  }

  void MakeDueUpdates() {
    if (!policy_->TakeDue()) return;
    for (const auto& block : blocks_) {
      MutexLock lock(&block->mutex);
      policy_->Reconsider(block.get());
    }
  }

  bool IsSettled(SlotId slot, Step step) const { return policy_->IsSettled(slot, step); }

  // Simulates kill -9 and a restart from the log; the collected gradients are lost.
  void KillAndReplay() {
    const std::vector<std::vector<uint8_t>> log = log_;
    blocks_ = NewBlocks();
    Replay(log, blocks_);
    Begin();
    TakeRestored();
  }

  // Simulates kill -9 and a restart from a checkpoint written just before.
  void KillAndRestore() {
    for (const auto& block : blocks_) {
      MutexLock lock(&block->mutex);
      block->ledger = policy_->SettledLedger(*block);
    }
    Begin();
    TakeRestored();
  }

  std::vector<float> values() const { return GetValues(blocks_); }
  std::vector<float> ValuesByLog() const {
    const Blocks blocks = NewBlocks();
    Replay(log_, blocks);
    return GetValues(blocks);
  }
  Version version() const {
    MutexLock lock(&blocks_[0]->mutex);
    return blocks_[0]->version;
  }
  UpdateCounts counts() const { return policy_->update_counts(); }

 private:
  using Blocks = std::vector<std::unique_ptr<Block>>;

  void Begin() {
    BatchPush::Options options;
    options.batch_samples = kBatch;
    policy_ = std::make_unique<BatchPush>(map_.blocks().size(), options, updater_.get(), clock_);
    policy_->SetJournal(this);
    std::vector<LiveSlot> live;
    for (SlotId slot = 0; slot < kSlots; ++slot) live.push_back({slot, 0});
    policy_->SetLive(live);
  }

  void TakeRestored() {
    for (const auto& block : blocks_) {
      MutexLock lock(&block->mutex);
      policy_->TakeRestored(block.get(), block->version);
    }
  }

  Blocks NewBlocks() const {
    Blocks blocks;
    for (const BlockRange& range : map_.blocks()) {
      blocks.push_back(std::make_unique<Block>(range));
      Block& block = *blocks.back();
      MutexLock lock(&block.mutex);
      updater_->Allocate(&block);
      const BlockChange change(&block);
      for (int64_t i = 0; i < range.length; ++i) {
        block.values[i] = static_cast<float>(Start(static_cast<int>(range.offset + i)));
      }
      block.initialized = true;
    }
    return blocks;
  }

  void Replay(const std::vector<std::vector<uint8_t>>& log, const Blocks& blocks) const {
    for (const std::vector<uint8_t>& bytes : log) {
      LogRecord record;
      FramePayload payload;
      ASSERT_TRUE(ReadLogRecord(/*salt=*/0, bytes, &record, &payload).ok());
      Block& block = *blocks[record.block];
      MutexLock lock(&block.mutex);
      ASSERT_TRUE(*ReplayLogRecord(record, payload, *updater_, &block));
    }
  }

  static std::vector<float> GetValues(const Blocks& blocks) {
    std::vector<float> values;
    for (const auto& block : blocks) {
      MutexLock lock(&block->mutex);
      values.insert(values.end(), block->values.begin(), block->values.end());
    }
    return values;
  }

  const ManualClock* const clock_;
  ModelLayout layout_;
  BlockMap map_;
  std::unique_ptr<BlockUpdater> updater_;
  std::vector<std::vector<uint8_t>> log_;
  Blocks blocks_;
  std::unique_ptr<BatchPush> policy_;
};

enum class Kill { kNever, kWithLog, kWithCheckpoint };

struct Outcome {
  std::vector<float> values;
  std::map<Verdict, int> verdicts;
  Version updates = 0;
  int early = 0;
};

// Slot 0 is fast, slot 2 is slow. Each slot waits until the push is settled.
Outcome Simulate(Kill kill) {
  std::mt19937_64 random(kSeed);
  ManualClock clock;
  Server server(&clock);
  Reference reference;
  Outcome outcome;
  std::map<SlotId, Flight> flights;    // gradients being computed
  std::map<SlotId, Flight> unsettled;  // pushes whose update is not made
  std::map<SlotId, Step> steps;
  int kills = 0;
  const auto follow = [&] {
    if (server.version() > outcome.updates) {
      reference.Update();
      ++outcome.updates;
      for (auto it = unsettled.begin(); it != unsettled.end();) {
        it = server.IsSettled(it->first, it->second.step) ? unsettled.erase(it) : std::next(it);
      }
    }
  };
  while (outcome.updates < kUpdates) {
    for (SlotId slot = 0; slot < kSlots; ++slot) {
      if (flights.count(slot) > 0 || unsettled.count(slot) > 0) continue;
      Flight flight;
      flight.step = ++steps[slot];
      flight.base = server.version();
      flight.samples = slot == 0 ? 6 : 3;
      const std::vector<float> values = server.values();
      for (int i = 0; i < kSize; ++i) {
        flight.gradient.push_back(static_cast<float>(GradientAt(slot, flight.step, i, values[i])));
      }
      flights[slot] = std::move(flight);
    }
    const uint64_t draw = random() % 10;
    const SlotId slot = draw < 5 ? 0 : draw < 9 ? 1 : 2;
    const auto found = flights.find(slot);
    if (found == flights.end()) {
      clock.Advance(absl::Milliseconds(400));
      server.MakeDueUpdates();
      follow();
      continue;
    }
    const Flight flight = std::move(found->second);
    flights.erase(found);
    const Verdict verdict = server.Push(slot, flight);
    ++outcome.verdicts[verdict];
    if (verdict == ACCEPTED) {
      EXPECT_GE(flight.base + 1, outcome.updates);
      reference.Collect(slot, flight);
      unsettled[slot] = flight;
      follow();
    }
    const bool is_half_full = reference.collected() == 6 && unsettled.size() == 1;
    if (kill != Kill::kNever && is_half_full && outcome.updates % 10 == 5 &&
        kills < outcome.updates / 10 + 1) {
      ++kills;
      kill == Kill::kWithLog ? server.KillAndReplay() : server.KillAndRestore();
      // Workers repeat unacknowledged pushes.
      for (const auto& [sender, repeated] : unsettled) {
        EXPECT_EQ(server.Push(sender, repeated), ACCEPTED);
      }
    }
  }
  EXPECT_TRUE(kill == Kill::kNever || kills > 3) << kills;
  outcome.values = server.values();
  outcome.early = reference.early();
  double difference = 0, length = 0;
  for (int i = 0; i < kSize; ++i) {
    difference += std::pow(outcome.values[i] - reference.values()[i], 2);
    length += std::pow(reference.values()[i], 2);
  }
  std::cout << "relative difference to the reference " << std::sqrt(difference / length)
            << " after " << kUpdates << " updates, " << outcome.early << " of them early, "
            << outcome.verdicts[REJECTED_STALE] << " gradients refused, " << kills
            << " kills (seed " << kSeed << ")" << std::endl;
  EXPECT_LE(std::sqrt(difference / length), 1e-5);
  EXPECT_EQ(server.ValuesByLog(), outcome.values);
  return outcome;
}

TEST(BatchUpdatesTest, ValuesMatchAReferenceInDoublePrecision) {
  const Outcome outcome = Simulate(Kill::kNever);
  EXPECT_GT(outcome.early, 5);
  EXPECT_GT(outcome.verdicts.at(REJECTED_STALE), 3);
}

TEST(BatchUpdatesTest, AKillLosesAndDoublesNoGradient) {
  const Outcome undisturbed = Simulate(Kill::kNever);
  EXPECT_EQ(Simulate(Kill::kWithLog).values, undisturbed.values);
  EXPECT_EQ(Simulate(Kill::kWithCheckpoint).values, undisturbed.values);
}

}  // namespace
}  // namespace torchps
