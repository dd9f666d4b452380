#include "torchps/worker/device/gradient_outbox.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/device/device_scene.h"
#include "tests/worker/device/fake_link.h"

namespace torchps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Returns element `index` of the flat vector in `step`.
float Element(int step, int64_t index) { return static_cast<float>(step * 1000 + index); }

// Reads a block's current elements. The sum of the elements is used as the norm. Blocks with an
// even sum count as finite.
class SumFiniteCheck final : public FiniteCheck {
 public:
  SumFiniteCheck(const BlockMap* map, absl::Span<const float> gradients)
      : map_(*map), gradients_(gradients), verdicts_(Blocks(*map) * kVerdictFloats) {}

  absl::Span<const float> verdicts() const override { return verdicts_; }
  absl::Status Look(BlockId id) override {
    const BlockRange& block = map_.blocks()[id];
    auto* const verdict = reinterpret_cast<GradientVerdict*>(&verdicts_[id * kVerdictFloats]);
    *verdict = Found(gradients_.subspan(block.offset, block.length));
    return absl::OkStatus();
  }

  static GradientVerdict Found(absl::Span<const float> elements) {
    const double sum = std::accumulate(elements.begin(), elements.end(), 0.0);
    return {sum, 1, static_cast<int64_t>(sum) % 2 == 0};
  }

 private:
  static int64_t Blocks(const BlockMap& map) {
    return std::count_if(map.blocks().begin(), map.blocks().end(),
                         [](const BlockRange& block) { return !block.averaged; });
  }

  const BlockMap& map_;
  const absl::Span<const float> gradients_;
  std::vector<float> verdicts_;
};

// Plays some training steps of a model on a device, with slow pushes.
class OutboxScene {
 public:
  OutboxScene(uint64_t seed, int64_t fail_at)
      : draw_(seed), layout_(DrawLayout(&draw_)), map_(DrawMap(layout_, &draw_)) {
    gradients_.resize(layout_.trained_size());
    averaged_.resize(layout_.averaged_size());
    for (std::vector<float>& buffer : buffers_) buffer.resize(layout_.size());
    FakeLink::Options device;
    device.seed = seed;
    device.fail_at = fail_at;
    link_ = std::make_unique<FakeLink>(device);
    GradientOutbox::Options options;
    options.link = link_.get();
    options.block_map = &map_;
    options.gradients = gradients_;
    options.averaged = averaged_;
    options.buffers = {absl::MakeSpan(buffers_[0]), absl::MakeSpan(buffers_[1])};
    if (draw_.Chance(0.5)) {
      look_ = std::make_unique<SumFiniteCheck>(&map_, gradients_);
      options.look = look_.get();
      for (size_t i = 0; i < verdicts_.size(); ++i) {
        verdicts_[i].resize(look_->verdicts().size());
        options.host_verdicts[i] = absl::MakeSpan(verdicts_[i]);
      }
    }
    options.least_copy_bytes = static_cast<int64_t>(draw_.Below(64));
    outbox_ = std::make_unique<GradientOutbox>(options);
  }

  SceneOutcome Play() {
    SceneOutcome outcome;
    for (int step = 1; step <= 5; ++step) PlayStep(step, &outcome.statuses);
    Look();
    outcome.operations = link_->operations();
    return outcome;
  }

 private:
  void PlayStep(int step, std::vector<absl::Status>* statuses) {
    outbox_->BeginStep();
    link_->Compute([this] { std::fill(gradients_.begin(), gradients_.end(), 0.0f); });
    const DrawnPass pass = DrawPass(map_, &draw_);
    for (uint64_t i = 0; i <= pass.blocks.size(); ++i) {
      if (i == pass.opens_at) Open(step);
      if (i == pass.drops_at) {
        outbox_->Drop();
        if (is_open_) is_whole_ = false;
        is_open_ = false;
        return;
      }
      draw_.MaybeStep(link_.get());
      if (i == pass.blocks.size()) break;
      const BlockRange block = map_.blocks()[pass.blocks[i]];
      link_->Compute([this, step, block] {
        for (int64_t e = block.offset; e < block.offset + block.length; ++e) {
          gradients_[e] = Element(step, e);
        }
      });
      if (draw_.Chance(0.9)) outbox_->BlockFinal(block.id);
    }
    link_->Compute([this, step] {
      for (size_t e = 0; e < averaged_.size(); ++e) {
        averaged_[e] = Element(step, layout_.trained_size() + static_cast<int64_t>(e));
      }
    });
    statuses->push_back(outbox_->Finish());
    is_open_ = false;
    is_whole_ = statuses->back().ok();
    Look();
  }

  void Open(int step) {
    Look();
    pushed_step_ = step;
    gradients_pushed_ = outbox_->gradients();
    averaged_pushed_ = outbox_->averaged();
    verdicts_pushed_ = outbox_->verdicts();
    told_.assign(map_.blocks().size(), false);
    is_whole_ = false;
    is_open_ = true;
    outbox_->Open([this](BlockId block) {
      EXPECT_TRUE(is_open_);
      EXPECT_FALSE(told_[block]);
      told_[block] = true;
      Look();
    });
  }

  // Checks that the data that the push may have sent is unchanged.
  void Look() {
    if (pushed_step_ == 0) return;
    for (const BlockRange& block : map_.blocks()) {
      if (!told_[block.id] && !is_whole_) continue;
      for (int64_t e = block.offset; e < block.offset + block.length; ++e) {
        const float pushed =
            block.averaged ? averaged_pushed_[e - layout_.trained_size()] : gradients_pushed_[e];
        ASSERT_EQ(pushed, Element(pushed_step_, e)) << "of step " << pushed_step_;
      }
      if (verdicts_pushed_.empty() || block.averaged) continue;
      const bool finite =
          SumFiniteCheck::Found(gradients_pushed_.subspan(block.offset, block.length)).finite;
      ASSERT_EQ(FiniteCheck::IsFinite(verdicts_pushed_, block.id), finite)
          << "of step " << pushed_step_;
    }
  }

  Draw draw_;
  const ModelLayout layout_;
  const BlockMap map_;
  std::vector<float> gradients_;
  std::vector<float> averaged_;
  std::array<std::vector<float>, 2> buffers_;
  std::array<std::vector<float>, 2> verdicts_;
  // Null if the device does not check blocks.
  std::unique_ptr<SumFiniteCheck> look_;
  // The step of the current push, or 0 without a push.
  int pushed_step_ = 0;
  absl::Span<const float> gradients_pushed_;
  absl::Span<const float> averaged_pushed_;
  absl::Span<const float> verdicts_pushed_;
  std::vector<bool> told_;
  bool is_open_ = false;
  // True once Finish() has succeeded, so that each block is ready.
  bool is_whole_ = false;
  std::unique_ptr<FakeLink> link_;
  std::unique_ptr<GradientOutbox> outbox_;
};

TEST(GradientOutboxTest, PushedBlocksAreFinalAndUnchangedAndErrorsAppearOnce) {
  PlaySeeds<OutboxScene>();
}

// The model has four blocks of two elements, and one block with one averaged element.
class OutboxTest : public ::testing::Test {
 protected:
  OutboxTest() {
    std::vector<Segment> segments(2);
    segments[0].name = "w";
    segments[0].shape = {8};
    segments[1].name = "mean";
    segments[1].shape = {1};
    segments[1].averaged = true;
    map_ = *BlockMap::Create(*ModelLayout::Create(segments), /*block_bytes=*/8, /*servers=*/1);
  }

  GradientOutbox::Options OptionsWith(DeviceLink* link, int64_t least_copy_bytes) {
    GradientOutbox::Options options;
    options.link = link;
    options.block_map = &map_;
    options.gradients = gradients_;
    options.averaged = averaged_;
    options.buffers = {absl::MakeSpan(buffers_[0]), absl::MakeSpan(buffers_[1])};
    options.least_copy_bytes = least_copy_bytes;
    return options;
  }

  GradientOutbox::OnBlock TellsTo(std::vector<BlockId>* told) {
    return [told](BlockId block) { told->push_back(block); };
  }

  static void Exhaust(FakeLink* link) {
    while (link->Step()) {
    }
  }

  BlockMap map_;
  std::vector<float> gradients_ = std::vector<float>(8, 1.0f);
  std::vector<float> averaged_ = std::vector<float>(1, 2.0f);
  std::array<std::vector<float>, 2> buffers_ = {std::vector<float>(9), std::vector<float>(9)};
};

TEST_F(OutboxTest, CopiesABlockEarlyButReportsItAfterThePushBegins) {
  FakeLink link(FakeLink::Options{});
  GradientOutbox outbox(OptionsWith(&link, /*least_copy_bytes=*/1));
  std::vector<BlockId> told;
  outbox.BeginStep();
  outbox.Open(TellsTo(&told));
  const float* const first = outbox.gradients().data();
  ASSERT_TRUE(outbox.Finish().ok());

  outbox.BeginStep();
  EXPECT_NE(outbox.gradients().data(), first);
  outbox.BlockFinal(3);
  Exhaust(&link);
  EXPECT_THAT(outbox.gradients().subspan(6, 2), Each(1.0f));
  EXPECT_THAT(told, ElementsAre());
  outbox.Open(TellsTo(&told));
  EXPECT_THAT(told, ElementsAre(3));
  outbox.BlockFinal(1);
  EXPECT_THAT(told, ElementsAre(3));
  Exhaust(&link);
  EXPECT_THAT(told, ElementsAre(3, 1));
  ASSERT_TRUE(outbox.Finish().ok());
  EXPECT_THAT(told, ElementsAre(3, 1));
  EXPECT_THAT(outbox.gradients(), Each(1.0f));
  EXPECT_THAT(outbox.averaged(), Each(2.0f));

  outbox.BeginStep();
  EXPECT_EQ(outbox.gradients().data(), first);
}

TEST_F(OutboxTest, CopiesSmallNeighboursTogether) {
  FakeLink link(FakeLink::Options{});
  GradientOutbox outbox(OptionsWith(&link, /*least_copy_bytes=*/16));
  std::vector<BlockId> told;
  outbox.BeginStep();
  outbox.Open(TellsTo(&told));
  outbox.BlockFinal(3);
  outbox.BlockFinal(0);
  Exhaust(&link);
  EXPECT_THAT(told, ElementsAre());
  outbox.BlockFinal(2);
  Exhaust(&link);
  EXPECT_THAT(told, ElementsAre(2, 3));
}

TEST_F(OutboxTest, ReportsABlockAfterTheDevicesVerdictArrives) {
  FakeLink link(FakeLink::Options{});
  SumFiniteCheck look(&map_, gradients_);
  std::array<std::vector<float>, 2> verdicts;
  GradientOutbox::Options options = OptionsWith(&link, /*least_copy_bytes=*/1);
  options.look = &look;
  for (size_t i = 0; i < verdicts.size(); ++i) {
    verdicts[i].resize(look.verdicts().size());
    options.host_verdicts[i] = absl::MakeSpan(verdicts[i]);
  }
  gradients_ = {1, 1, 1, 2, 1, 3, 1, 4};
  GradientOutbox outbox(options);
  std::vector<bool> finite(4);
  std::vector<BlockId> told;
  outbox.BeginStep();
  outbox.Open([&](BlockId block) {
    told.push_back(block);
    finite[block] = FiniteCheck::IsFinite(outbox.verdicts(), block);
  });
  outbox.BlockFinal(3);
  outbox.BlockFinal(1);
  Exhaust(&link);
  EXPECT_THAT(told, ElementsAre(3, 1));
  EXPECT_THAT(finite, ElementsAre(false, false, false, false));
  // The check also covers blocks that no hook reported as final.
  ASSERT_TRUE(outbox.Finish().ok());
  EXPECT_TRUE(FiniteCheck::IsFinite(outbox.verdicts(), 0));
  EXPECT_TRUE(FiniteCheck::IsFinite(outbox.verdicts(), 2));
  const absl::Span<const float> first = outbox.verdicts();

  // The push may still read the previous step's verdicts.
  outbox.BeginStep();
  EXPECT_NE(outbox.verdicts().data(), first.data());
  gradients_ = {1, 2, 1, 2, 1, 2, 1, 2};
  outbox.Open(TellsTo(&told));
  ASSERT_TRUE(outbox.Finish().ok());
  EXPECT_FALSE(FiniteCheck::IsFinite(outbox.verdicts(), 0));
  EXPECT_TRUE(FiniteCheck::IsFinite(first, 0));
}

TEST_F(OutboxTest, ADroppedStepReportsNothingAndFreesItsBuffer) {
  FakeLink link(FakeLink::Options{});
  GradientOutbox outbox(OptionsWith(&link, /*least_copy_bytes=*/1));
  std::vector<BlockId> told;
  outbox.BeginStep();
  const float* const first = outbox.gradients().data();
  outbox.BlockFinal(3);
  outbox.Drop();
  // No push sends the buffer of the dropped step, so the next step uses it again. The previous push
  // may still send the other buffer.
  outbox.BeginStep();
  EXPECT_EQ(outbox.gradients().data(), first);
  outbox.Open(TellsTo(&told));
  ASSERT_TRUE(outbox.Finish().ok());
  EXPECT_THAT(told, ElementsAre());
}

TEST_F(OutboxTest, AHookAfterADroppedStepDoesNothing) {
  FakeLink link(FakeLink::Options{});
  GradientOutbox outbox(OptionsWith(&link, /*least_copy_bytes=*/1));
  outbox.BeginStep();
  outbox.Drop();
  outbox.BlockFinal(3);
  EXPECT_EQ(link.operations(), 0);
  std::vector<BlockId> told;
  outbox.BeginStep();
  outbox.Open(TellsTo(&told));
  outbox.BlockFinal(3);
  ASSERT_TRUE(outbox.Finish().ok());
  EXPECT_THAT(told, ElementsAre(3));
}

// Hooks run on the trainer's thread and on another thread, while the link's thread copies.
// ThreadSanitizer looks for data races.
TEST_F(OutboxTest, HooksMayRunOnSeveralThreads) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    FakeLink link({seed, /*own_thread=*/true, /*fail_at=*/-1});
    GradientOutbox outbox(OptionsWith(&link, /*least_copy_bytes=*/seed % 2 == 0 ? 16 : 1));
    for (int step = 1; step <= 4; ++step) {
      Mutex mutex;
      std::vector<float> told;
      outbox.BeginStep();
      const auto compute = [&](BlockId begin) {
        for (BlockId block = begin; block < begin + 2; ++block) {
          for (BlockId e = 2 * block; e < 2 * block + 2; ++e) gradients_[e] = Element(step, e);
          outbox.BlockFinal(block);
        }
      };
      std::thread other(compute, 2);
      outbox.Open([&](BlockId block) {
        MutexLock lock(&mutex);
        told.push_back(outbox.gradients()[2 * block] - Element(step, 2 * block));
      });
      compute(0);
      other.join();
      ASSERT_TRUE(outbox.Finish().ok());
      MutexLock lock(&mutex);
      EXPECT_EQ(told.size(), 4u);
      EXPECT_THAT(told, Each(0.0f));
    }
  }
}

}  // namespace
}  // namespace torchps
