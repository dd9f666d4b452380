// Compares the servers' and workers' rules for late gradients with a second implementation that
// does not share code with the product. This reference replays the record of (slot, step, base
// version, version) in double and recomputes each gradient from its own values. Replaying the
// product's push log must reproduce the product's values bit by bit. Prints the test's seed.

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/async_job.h"
#include "torchps/client/worker_momentum.h"
#include "torchps/common/block_map.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/model_layout.h"
#include "torchps/job/job_spec.h"
#include "torchps/server/push_log/log_record.h"
#include "torchps/server/push_log/replay.h"
#include "torchps/server/store/async_push.h"
#include "torchps/server/store/block.h"
#include "torchps/server/store/block_journal.h"
#include "torchps/server/store/block_updater.h"

namespace torchps {
namespace {

constexpr int kSlots = 3;
constexpr int kSteps = 200;
constexpr uint64_t kSeed = 20;
constexpr int kWeights = 40;
constexpr int kSize = 49;  // kWeights weights and 9 biases
constexpr double kMomentum = 0.9;
constexpr double kRate = 0.01;
constexpr double kDecay = 0.1;
constexpr int kFreeLag = 2;

// Returns a number in [0, 1) that is a function of the arguments.
double Random(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = kSeed * 0x9e3779b97f4a7c15u + a * 0xd1b54a32d192ed03u + b * 0x2545f4914f6cdd1du + c;
  for (int i = 0; i < 3; ++i) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
  }
  return static_cast<double>((x ^ x >> 33) >> 11) / 9007199254740992.0;
}

// Identifies a push by slot and step. `base` is the version that the slot pulled, and `version` the
// version when the push arrived.
struct Push {
  int slot = 0;
  int step = 0;
  int64_t base = 0;
  int64_t version = 0;
};

// Returns the gradient at `value` of a noisy quadratic with curvatures from 1/4 to 2.
double GradientAt(const Push& push, int element, double value) {
  const double curvature = 0.25 + 1.75 * Random(1, element, 0);
  const double lowest = 2 * Random(2, element, 0) - 1;
  return curvature * (value - lowest) + Random(3, 1000 * push.slot + push.step, element) - 0.5;
}

// Some steps do not reach some of the weights.
bool IsAbsent(const Push& push, int element) {
  return push.step % 4 == 3 && element >= 10 && element < 20 + push.slot;
}

double Start(int element) { return 4 * Random(4, element, 0) - 2; }
double GetDecay(int element) { return element < kWeights ? kDecay : 0; }
double GetRate(int element) { return element < kWeights ? kRate : 2 * kRate; }
double LagFactor(const Push& push) {
  return std::min(1.0,
                  static_cast<double>(kFreeLag) / std::max<int64_t>(push.version - push.base, 1));
}

// For local steps: number of samples in one step of all slots. The slots have unequal shares.
constexpr int kSamplesOfAll = 12;
uint32_t GetSamples(const Push& push) {
  return 2 + static_cast<uint32_t>((push.slot + push.step) % 4);
}
double GetPart(const Push& push) { return static_cast<double>(GetSamples(push)) / kSamplesOfAll; }

// Keeps the push log's records as bytes.
class Journal final : public BlockJournal {
 public:
  void Record(const Block& block, const BlockRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) override {
    LogRecord made;
    made.kind = LogKind::kGradient;
    made.sequence = records_.size() + 1;
    made.block = block.range.id;
    made.base_version = block.version - 1;
    made.version = block.version;
    made.terms = record.terms;
    made.absent.assign(record.absent.begin(), record.absent.end());
    for (const SlotId slot : record.slots) made.ledger.push_back({slot, block.ledger[slot]});
    std::vector<uint8_t> bytes(
        LogRecordBytes(made.ledger.size(), made.absent.size(), record.payload->bytes()));
    WriteLogRecord(made, *record.payload, bytes.data());
    SealLogRecord(/*salt=*/0, /*durable_sequence=*/0, bytes.data());
    records_.push_back(std::move(bytes));
  }
  void WhenDurable(std::function<void()> continuation) override { continuation(); }

  const std::vector<std::vector<uint8_t>>& records() const { return records_; }

 private:
  std::vector<std::vector<uint8_t>> records_;
};

// Runs the product: blocks of 16 elements, and three slots that pull and push in a random order.
class Product {
 public:
  Product(const std::string& sgd, const std::string& consistency, const SampleScale& scale) {
    JobSpec job;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "workers: 3 optimizer { " + sgd +
            " learning_rate: 0.01 weight_decay: 0.1 "
            "group { pattern: 'bias' learning_rate_factor: 2 weight_decay: 0 } } " +
            consistency,
        &job));
    job_ = *NormalizeJobSpec(AsyncUnlessSaid(job));
    std::vector<Segment> segments(2);
    segments[0].name = "weight";
    segments[0].shape = {kWeights};
    segments[1].name = "bias";
    segments[1].shape = {kSize - kWeights};
    segments[1].group = 0;
    layout_ = *ModelLayout::Create(segments);
    map_ = *BlockMap::Create(layout_, 64, 1);
    updater_ = *BlockUpdater::Create(job_.optimizer(), layout_, map_, job_.workers());
    policy_ = std::make_unique<AsyncPush>(job_.consistency().lag(), scale, /*progress_slack=*/0,
                                          updater_.get());
    policy_->SetJournal(&journal_);
    blocks_ = NewBlocks();
    for (Slot& slot : slots_) {
      slot.momentum = WorkerMomentum::Create(job_.optimizer(), layout_, map_);
      Pull(&slot);
    }
  }

  std::vector<Push> Run() {
    std::vector<Push> record;
    for (int i = 0; i < kSteps; ++i) {
      // The third slot is slow.
      const double draw = Random(5, i, 0);
      const int slot = draw < 0.45 ? 0 : draw < 0.9 ? 1 : 2;
      record.push_back(Step(slot));
      Pull(&slots_[slot]);
    }
    return record;
  }

  std::vector<float> values() { return GetValues(blocks_); }

  // Returns the values that the push log yields from the initial values.
  std::vector<float> ValuesByLog() {
    const Blocks blocks = NewBlocks();
    for (const std::vector<uint8_t>& bytes : journal_.records()) {
      LogRecord record;
      FramePayload payload;
      EXPECT_TRUE(ReadLogRecord(/*salt=*/0, bytes, &record, &payload).ok());
      Block& block = *blocks[record.block];
      MutexLock lock(&block.mutex);
      EXPECT_TRUE(*ReplayLogRecord(record, payload, *updater_, &block));
    }
    return GetValues(blocks);
  }

 private:
  using Blocks = std::vector<std::unique_ptr<Block>>;

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

  static std::vector<float> GetValues(const Blocks& blocks) {
    std::vector<float> values;
    for (const auto& block : blocks) {
      MutexLock lock(&block->mutex);
      values.insert(values.end(), block->values.begin(), block->values.end());
    }
    return values;
  }

  struct Slot {
    std::unique_ptr<WorkerMomentum> momentum;
    int step = 0;
    int64_t version = 0;
    std::vector<float> values;
  };

  void Pull(Slot* slot) {
    slot->values = values();
    MutexLock lock(&blocks_[0]->mutex);
    slot->version = blocks_[0]->version;
  }

  Push Step(int index) {
    Slot& slot = slots_[index];
    Push push;
    push.slot = index;
    push.step = ++slot.step;
    push.base = slot.version;
    for (const auto& block : blocks_) {
      const BlockRange& range = block->range;
      std::vector<float> gradient(range.length);
      ElementRuns absent;
      for (int i = 0; i < range.length; ++i) {
        const int element = static_cast<int>(range.offset) + i;
        if (IsAbsent(push, element)) {
          AppendRun(i, i + 1, &absent);
        } else {
          gradient[i] = static_cast<float>(GradientAt(push, element, slot.values[element]));
        }
      }
      if (slot.momentum != nullptr) {
        EXPECT_TRUE(slot.momentum->Apply(range.id, slot.values, absent, absl::MakeSpan(gradient)));
      }
      PushHeader header;
      header.slot = index;
      header.incarnation = 1;
      header.step = push.step;
      header.block = range.id;
      header.base_version = push.base;
      header.weight = GetSamples(push);
      header.absent = absent;
      const grpc::Slice bytes(gradient.data(), gradient.size() * sizeof(float));
      MutexLock lock(&block->mutex);
      push.version = block->version;
      const FramePayload payload({bytes}, 0, EncodingSpec::FLOAT32);
      EXPECT_TRUE(policy_->Push(block.get(), header, payload).ok());
    }
    return push;
  }

  JobSpec job_;
  ModelLayout layout_;
  BlockMap map_;
  std::unique_ptr<BlockUpdater> updater_;
  Journal journal_;
  std::unique_ptr<AsyncPush> policy_;
  Blocks blocks_;
  Slot slots_[kSlots];
};

// One element of the reference.
struct Element {
  int index = 0;
  double value = 0;
  double momentum = 0;                 // momentum on the servers
  double of_slot[kSlots] = {0, 0, 0};  // momentum in each worker
  double gathered = 0;                 // sum of gradients since the momentum changed
  int64_t taken = 0;                   // gradients that were not absent
};
// Applies one push to an element. `base` is the element's value at the push's base version.
using Rule = std::function<void(const Push& push, double gradient, double base, Element* element)>;

std::vector<double> Replay(const std::vector<Push>& record, const Rule& rule) {
  std::vector<double> values;
  for (int i = 0; i < kSize; ++i) {
    Element element;
    element.index = i;
    element.value = Start(i);
    std::vector<double> by_version = {element.value};
    for (const Push& push : record) {
      EXPECT_EQ(push.version + 1, static_cast<int64_t>(by_version.size()));
      if (!IsAbsent(push, i)) {
        const double base = by_version[push.base];
        rule(push, GradientAt(push, i, base), base, &element);
        ++element.taken;
      }
      by_version.push_back(element.value);
    }
    values.push_back(element.value);
  }
  return values;
}

void ExpectRule(const std::string& sgd, const std::string& consistency, const Rule& rule,
                const SampleScale& scale = {}) {
  Product product(sgd, consistency, scale);
  const std::vector<Push> record = product.Run();
  int64_t largest_lag = 0;
  for (const Push& push : record) largest_lag = std::max(largest_lag, push.version - push.base);
  EXPECT_GT(largest_lag, 2 * kSlots) << "in a record that distinguishes the rules";
  const std::vector<double> expected = Replay(record, rule);
  const std::vector<float> values = product.values();
  double difference = 0, length = 0, moved = 0;
  for (int i = 0; i < kSize; ++i) {
    difference += std::pow(values[i] - expected[i], 2);
    length += std::pow(expected[i], 2);
    moved += std::pow(expected[i] - Start(i), 2);
  }
  std::cout << sgd << " " << consistency << ": relative difference to the reference "
            << std::sqrt(difference / length) << " after " << kSteps << " pushes, largest lag "
            << largest_lag << " (seed " << kSeed << ")" << std::endl;
  EXPECT_LE(std::sqrt(difference / length), 1e-5);
  EXPECT_EQ(product.ValuesByLog(), values);
  EXPECT_GT(std::sqrt(moved / length), 0.1);
}

TEST(LateGradientsTest, WorkerMomentumMatchesTheReference) {
  ExpectRule("sgd { momentum: 0.9 momentum_at: WORKER }", "",
             [](const Push& push, double gradient, double base, Element* element) {
               const double g = gradient + GetDecay(element->index) * base;
               double& v = element->of_slot[push.slot];
               v = kMomentum * v + g;
               element->value -= GetRate(element->index) * (g + kMomentum * v);
             });
}

// Applies a gradient by the rule of momentum_at DELAYED: moves along the gradient at once, and
// changes the momentum once in kSlots gradients.
void TakeDelayed(double gradient, Element* element) {
  const double rate = GetRate(element->index);
  const double g = gradient + GetDecay(element->index) * element->value;
  element->value -= rate * g;
  element->gathered += g;
  if (element->taken % kSlots != kSlots - 1) return;
  element->momentum = kMomentum * element->momentum + element->gathered;
  element->value -= rate * kMomentum * element->momentum;
  element->gathered = 0;
}

constexpr char kLocalSteps[] = "local { steps: 1 inner { learning_rate: 1 } }";

TEST(LateGradientsTest, DelayedMomentumMatchesTheReference) {
  ExpectRule("sgd { momentum: 0.9 momentum_at: DELAYED }", kLocalSteps,
             [](const Push&, double gradient, double, Element* element) {
               TakeDelayed(gradient, element);
             });
}

TEST(LateGradientsTest, DelayedMomentumOfWeighedSharesMatchesTheReference) {
  ExpectRule("sgd { momentum: 0.9 momentum_at: DELAYED }",
             std::string("consistency { lag { policy: WEIGH free_lag: 2 } } ") + kLocalSteps,
             [](const Push& push, double gradient, double, Element* element) {
               TakeDelayed(gradient * GetPart(push) * LagFactor(push), element);
             },
             {SampleScale::Of::kGradient, kSamplesOfAll, /*is_of_all=*/true});
}

TEST(LateGradientsTest, WeighScalesAGradientBeforeTheServersMomentum) {
  ExpectRule("sgd { momentum: 0.9 momentum_at: SERVER }",
             "consistency { lag { policy: WEIGH free_lag: 2 } }",
             [](const Push& push, double gradient, double, Element* element) {
               const double g =
                   gradient * LagFactor(push) + GetDecay(element->index) * element->value;
               element->momentum = kMomentum * element->momentum + g;
               element->value -= GetRate(element->index) * element->momentum;
             });
}

TEST(LateGradientsTest, WeighScalesAPushThatIncludesTheWorkersMomentum) {
  ExpectRule("sgd { momentum: 0.9 }", "consistency { lag { policy: WEIGH free_lag: 2 } }",
             [](const Push& push, double gradient, double base, Element* element) {
               const double g = gradient + GetDecay(element->index) * base;
               double& v = element->of_slot[push.slot];
               v = kMomentum * v + g;
               element->value -= GetRate(element->index) * LagFactor(push) * (g + kMomentum * v);
             });
}

}  // namespace
}  // namespace torchps
