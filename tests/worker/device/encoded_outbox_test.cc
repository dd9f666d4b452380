#include "torchps/worker/device/encoded_outbox.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/device/device_scene.h"
#include "tests/worker/device/fake_link.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/mutex.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;

EncodingSpec TwoBytes() {
  EncodingSpec encoding;
  encoding.set_kind(EncodingSpec::BFLOAT16);
  encoding.set_fraction(1);
  return encoding;
}

// Sends the even part of each integer sum, and keeps the odd remainder as the residual.
class EvenEncoder final : public BlockEncoder {
 public:
  EvenEncoder(const BlockMap& map, const std::vector<float>* gradients)
      : map_(map),
        gradients_(gradients),
        records_(map, TwoBytes()),
        memory_(records_.size() / 2 + 1),
        residual_(gradients->size()) {}

  const EncodedRecords& records() const override { return records_; }
  absl::Span<const float> memory() const override {
    return {reinterpret_cast<const float*>(memory_.data()), static_cast<size_t>(records_.size())};
  }

  absl::Status Encode(BlockId id, bool looks, absl::Span<const ElementRun> absent) override {
    const BlockRange& block = map_.blocks()[id];
    const auto gradient = absl::MakeConstSpan(*gradients_).subspan(block.offset, block.length);
    float* const record = Record(id);
    if (looks) {
      const bool finite = std::all_of(gradient.begin(), gradient.end(),
                                      [](float element) { return std::isfinite(element); });
      EncodedRecords::GetVerdict(record)->finite = finite ? 1 : 0;
      if (!finite) return absl::OkStatus();
    }
    auto* const bytes = reinterpret_cast<uint16_t*>(EncodedRecords::GetBytes(record));
    for (int64_t i = 0; i < block.length; ++i) {
      const bool is_absent = std::any_of(absent.begin(), absent.end(), [i](const ElementRun& run) {
        return run.begin <= i && i < run.end;
      });
      bytes[i] = 0;
      if (is_absent) continue;
      const int sum = residual_[block.offset + i] + static_cast<int>(gradient[i]);
      bytes[i] = static_cast<uint16_t>(sum - sum % 2);
      residual_[block.offset + i] = sum % 2;
    }
    return absl::OkStatus();
  }

  absl::Status TakeBack(BlockId id) override {
    const BlockRange& block = map_.blocks()[id];
    const auto* const bytes =
        reinterpret_cast<const uint16_t*>(EncodedRecords::GetBytes(Record(id)));
    for (int64_t i = 0; i < block.length; ++i) residual_[block.offset + i] += bytes[i];
    return absl::OkStatus();
  }

 private:
  float* Record(BlockId id) {
    return reinterpret_cast<float*>(memory_.data()) + records_.begin(id);
  }

  const BlockMap& map_;
  const std::vector<float>* const gradients_;
  const EncodedRecords records_;
  std::vector<double> memory_;
  std::vector<int> residual_;
};

// Returns element `index` of the gradient of `step`.
int Element(int step, int64_t index) { return step * 1000 + static_cast<int>(index); }

// Plays some training steps of a model on a device. Pushes are slow. Some blocks are taken back, as
// after pushes that were not applied.
class EncodedScene {
 public:
  EncodedScene(uint64_t seed, int64_t fail_at)
      : draw_(seed), layout_(DrawLayout(&draw_)), map_(DrawMap(layout_, &draw_)) {
    gradients_.resize(layout_.trained_size());
    averaged_.resize(layout_.averaged_size());
    host_averaged_.resize(layout_.averaged_size());
    residual_.resize(layout_.trained_size());
    sent_.resize(layout_.trained_size());
    encoder_ = std::make_unique<EvenEncoder>(map_, &gradients_);
    host_records_.resize(encoder_->memory().size() / 2 + 1);
    FakeLink::Options device;
    device.seed = seed;
    device.fail_at = fail_at;
    link_ = std::make_unique<FakeLink>(device);
    EncodedOutbox::Options options;
    options.link = link_.get();
    options.block_map = &map_;
    options.encoder = encoder_.get();
    options.averaged = averaged_;
    options.host_records = {reinterpret_cast<float*>(host_records_.data()),
                            encoder_->memory().size()};
    options.host_averaged = absl::MakeSpan(host_averaged_);
    options.least_copy_bytes = static_cast<int64_t>(draw_.Below(64));
    outbox_ = std::make_unique<EncodedOutbox>(options);
  }

  SceneOutcome Play() {
    SceneOutcome outcome;
    for (int step = 1; step <= 6 && PlayStep(step, &outcome.statuses); ++step) {
    }
    outcome.operations = link_->operations();
    return outcome;
  }

 private:
  enum class Block { kNotTold, kSent, kNotFinite, kAbsent };

  // Returns false if the step ended the worker.
  bool PlayStep(int step, std::vector<absl::Status>* statuses) {
    outbox_->BeginStep();
    link_->Compute([this] { std::fill(gradients_.begin(), gradients_.end(), 0.0f); });
    const DrawnPass pass = DrawPass(map_, &draw_);
    is_finite_.assign(map_.blocks().size(), true);
    std::vector<BlockId> left;
    is_open_ = false;
    for (uint64_t i = 0; i <= pass.blocks.size(); ++i) {
      if (i == pass.opens_at) Open(step);
      if (i == pass.drops_at) {
        outbox_->Drop();
        // After Open() the device may have encoded some blocks. They are not pushed, so the worker
        // ends.
        return !std::exchange(is_open_, false);
      }
      draw_.MaybeStep(link_.get());
      LookAtAll();
      if (i == pass.blocks.size()) break;
      const BlockRange block = map_.blocks()[pass.blocks[i]];
      is_finite_[block.id] = draw_.Chance(0.8);
      const bool is_final = draw_.Chance(0.8);
      const bool finite = is_finite_[block.id];
      link_->Compute([this, step, block, finite] {
        for (int64_t e = block.offset; e < block.offset + block.length; ++e) {
          gradients_[e] = static_cast<float>(Element(step, e));
        }
        if (!finite) gradients_[block.offset] = std::numeric_limits<float>::infinity();
      });
      if (is_final) {
        outbox_->BlockFinal(block.id);
      } else {
        left.push_back(block.id);
      }
    }
    return FinishStep(step, std::move(left), statuses);
  }

  bool FinishStep(int step, std::vector<BlockId> left, std::vector<absl::Status>* statuses) {
    // In some blocks that no hook reported as final, a run of elements is absent, or the whole
    // block.
    std::sort(left.begin(), left.end());
    ElementRuns absent;
    for (const BlockId id : left) {
      const BlockRange block = map_.blocks()[id];
      if (!draw_.Chance(0.5)) continue;
      const auto begin = static_cast<int64_t>(draw_.Below(block.length));
      const auto length = static_cast<int64_t>(1 + draw_.Below(block.length - begin));
      AppendRun(block.offset + begin, block.offset + begin + length, &absent);
      link_->Compute([this, block, begin, length] {
        std::fill_n(gradients_.begin() + block.offset + begin, length, 0.0f);
      });
      if (begin == 0) is_finite_[id] = true;
    }
    link_->Compute([this, step] {
      for (size_t e = 0; e < averaged_.size(); ++e) averaged_[e] = static_cast<float>(step + e);
    });
    statuses->push_back(outbox_->Finish(absent));
    is_open_ = false;
    if (!statuses->back().ok()) {
      state_.clear();
      return true;
    }
    for (const BlockRange& block : map_.blocks()) {
      if (!block.averaged && state_[block.id] == Block::kNotTold) Expect(step, block, absent);
    }
    LookAtAll();
    for (size_t e = 0; e < host_averaged_.size(); ++e) {
      EXPECT_EQ(host_averaged_[e], static_cast<float>(step + e));
    }
    TakeSomeBack();
    return true;
  }

  void Open(int step) {
    is_open_ = true;
    // The data of the previous push must still be unchanged.
    LookAtAll();
    for (const BlockId block : taken_back_) {
      const BlockRange& range = map_.blocks()[block];
      for (int64_t e = range.offset; e < range.offset + range.length; ++e) residual_[e] += sent_[e];
    }
    taken_back_.clear();
    state_.assign(map_.blocks().size(), Block::kNotTold);
    outbox_->Open([this, step](BlockId block) {
      EXPECT_TRUE(is_open_);
      EXPECT_EQ(state_[block], Block::kNotTold);
      Expect(step, map_.blocks()[block], {});
      Look(map_.blocks()[block]);
    });
  }

  // Computes the data that the encoder must send for the block, and the residual that it must keep.
  void Expect(int step, const BlockRange& block, const ElementRuns& absent) {
    const ElementRuns runs = RunsWithin(absent, block.offset, block.offset + block.length);
    if (CoversAll(runs, block.length)) {
      state_[block.id] = Block::kAbsent;
      return;
    }
    if (!is_finite_[block.id]) {
      state_[block.id] = Block::kNotFinite;
      return;
    }
    state_[block.id] = Block::kSent;
    for (int64_t i = 0; i < block.length; ++i) {
      const int64_t e = block.offset + i;
      sent_[e] = 0;
      const bool is_absent = std::any_of(runs.begin(), runs.end(), [i](const ElementRun& run) {
        return run.begin <= i && i < run.end;
      });
      if (is_absent) continue;
      const int sum = residual_[e] + Element(step, e);
      sent_[e] = sum - sum % 2;
      residual_[e] = sum % 2;
    }
  }

  // Checks that the data of the current push is unchanged.
  void LookAtAll() {
    for (const BlockRange& block : map_.blocks()) {
      if (block.averaged || state_.empty() || state_[block.id] == Block::kNotTold) continue;
      Look(block);
    }
  }
  void Look(const BlockRange& block) {
    if (state_[block.id] == Block::kAbsent) return;
    ASSERT_EQ(outbox_->IsFinite(block.id), state_[block.id] == Block::kSent);
    if (state_[block.id] != Block::kSent) return;
    const absl::Span<const uint8_t> bytes = outbox_->GetBytes(block.id);
    ASSERT_EQ(bytes.size(), static_cast<size_t>(2 * block.length));
    const auto* const numbers = reinterpret_cast<const uint16_t*>(bytes.data());
    for (int64_t i = 0; i < block.length; ++i) {
      ASSERT_EQ(numbers[i], sent_[block.offset + i]) << "element " << block.offset + i;
    }
  }

  // Takes back arbitrary blocks, perhaps twice, including unsent and averaged blocks.
  void TakeSomeBack() {
    for (const BlockRange& block : map_.blocks()) {
      if (!draw_.Chance(0.3)) continue;
      for (uint64_t times = 1 + draw_.Below(2); times > 0; --times) outbox_->TakeBack(block.id);
      if (!block.averaged && state_[block.id] == Block::kSent) taken_back_.push_back(block.id);
    }
  }

  Draw draw_;
  const ModelLayout layout_;
  const BlockMap map_;
  std::vector<float> gradients_;
  std::vector<float> averaged_;
  std::vector<double> host_records_;
  std::vector<float> host_averaged_;
  // Expected residual and expected sent value of each element.
  std::vector<int> residual_;
  std::vector<int> sent_;
  // Expected state of each block.
  std::vector<Block> state_;
  std::vector<bool> is_finite_;
  std::vector<BlockId> taken_back_;
  bool is_open_ = false;
  std::unique_ptr<EvenEncoder> encoder_;
  std::unique_ptr<FakeLink> link_;
  std::unique_ptr<EncodedOutbox> outbox_;
};

TEST(EncodedOutboxTest, TakesBackRejectedBlocksBeforeTheNextEncoding) { PlaySeeds<EncodedScene>(); }

// Four blocks of two elements.
class EncodedBlocksTest : public ::testing::Test {
 protected:
  EncodedBlocksTest() {
    std::vector<Segment> segments(1);
    segments[0].name = "w";
    segments[0].shape = {8};
    map_ = *BlockMap::Create(*ModelLayout::Create(segments), /*block_bytes=*/8, /*servers=*/1);
    encoder_ = std::make_unique<EvenEncoder>(map_, &gradients_);
    host_records_.resize(encoder_->memory().size() / 2);
  }

  EncodedOutbox::Options OptionsWith(DeviceLink* link) {
    EncodedOutbox::Options options;
    options.link = link;
    options.block_map = &map_;
    options.encoder = encoder_.get();
    options.host_records = {reinterpret_cast<float*>(host_records_.data()),
                            encoder_->memory().size()};
    options.least_copy_bytes = 1;
    return options;
  }

  BlockMap map_;
  std::vector<float> gradients_ = std::vector<float>(8, 5.0f);
  std::unique_ptr<EvenEncoder> encoder_;
  std::vector<double> host_records_;
};

TEST_F(EncodedBlocksTest, AFinalBlockIsEncodedOnlyAfterThePushBegins) {
  FakeLink link(FakeLink::Options{});
  EncodedOutbox outbox(OptionsWith(&link));
  std::vector<BlockId> told;
  outbox.BeginStep();
  outbox.BlockFinal(3);
  while (link.Step()) {
  }
  const int64_t before = link.operations();
  EXPECT_EQ(before, 1) << "the mark after the computation";
  outbox.Open([&told](BlockId block) { told.push_back(block); });
  while (link.Step()) {
  }
  EXPECT_THAT(told, ElementsAre(3));
  EXPECT_THAT(outbox.GetBytes(3), ElementsAre(4, 0, 4, 0));
  ASSERT_TRUE(outbox.Finish({}).ok());
  EXPECT_THAT(told, ElementsAre(3));
  EXPECT_THAT(outbox.GetBytes(0), ElementsAre(4, 0, 4, 0));
}

TEST_F(EncodedBlocksTest, AHookAfterADroppedStepDoesNothing) {
  FakeLink link(FakeLink::Options{});
  EncodedOutbox outbox(OptionsWith(&link));
  outbox.BeginStep();
  outbox.Drop();
  outbox.BlockFinal(3);
  EXPECT_EQ(link.operations(), 0);
}

// Hooks run on the trainer's thread and on another thread, while the link's thread copies.
// ThreadSanitizer looks for data races.
TEST_F(EncodedBlocksTest, HooksMayRunOnSeveralThreads) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    FakeLink link({seed, /*own_thread=*/true, /*fail_at=*/-1});
    EncodedOutbox outbox(OptionsWith(&link));
    for (int step = 1; step <= 4; ++step) {
      Mutex mutex;
      std::vector<BlockId> told;
      outbox.BeginStep();
      const auto compute = [&](BlockId begin) {
        for (BlockId block = begin; block < begin + 2; ++block) outbox.BlockFinal(block);
      };
      std::thread other(compute, 2);
      outbox.Open([&](BlockId block) {
        MutexLock lock(&mutex);
        told.push_back(block);
      });
      compute(0);
      other.join();
      ASSERT_TRUE(outbox.Finish({}).ok());
      for (BlockId block = 0; block < 4; ++block) outbox.TakeBack(block);
      MutexLock lock(&mutex);
      EXPECT_THAT(told, ::testing::UnorderedElementsAre(0, 1, 2, 3));
    }
  }
}

}  // namespace
}  // namespace torchps
