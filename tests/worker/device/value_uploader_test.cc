#include "torchps/worker/device/value_uploader.h"

#include <array>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/device/device_scene.h"
#include "tests/worker/device/fake_link.h"

namespace torchps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Simulates pulls into two host vectors, of some or of the complete blocks. Some pulls are dropped,
// and some blocks arrive twice.
class InboxScene {
 public:
  InboxScene(uint64_t seed, int64_t fail_at)
      : draw_(seed), layout_(DrawLayout(&draw_)), map_(DrawMap(layout_, &draw_)) {
    for (std::vector<float>* vector : {&hosts_[0], &hosts_[1], &staging_, &values_}) {
      vector->resize(layout_.size());
    }
    expected_ = values_;
    FakeLink::Options device;
    device.seed = seed;
    device.fail_at = fail_at;
    link_ = std::make_unique<FakeLink>(device);
    ValueUploader::Options options;
    options.link = link_.get();
    options.block_map = &map_;
    options.staging = absl::MakeSpan(staging_);
    options.values = absl::MakeSpan(values_);
    options.least_copy_bytes = static_cast<int64_t>(draw_.Below(64));
    inbox_ = std::make_unique<ValueUploader>(options);
  }

  SceneOutcome Play() {
    SceneOutcome outcome;
    for (int pull = 1; pull <= 6; ++pull) {
      PlayPull(pull, &outcome.statuses);
      draw_.MaybeStep(link_.get());
    }
    outcome.operations = link_->operations();
    while (link_->Step()) {
    }
    return outcome;
  }

 private:
  void PlayPull(int pull, std::vector<absl::Status>* statuses) {
    std::vector<float>& host = hosts_[draw_.Below(2)];
    statuses->push_back(inbox_->Begin(host));
    if (!statuses->back().ok()) return;
    std::vector<BlockId> landing;
    const double wanted = draw_.Chance(0.7) ? 1 : 0.5;
    for (const BlockRange& block : map_.blocks()) {
      if (draw_.Chance(wanted)) landing.push_back(block.id);
      if (draw_.Chance(0.1)) landing.push_back(block.id);
    }
    draw_.Shuffle(&landing);
    const bool is_dropped = draw_.Chance(0.2);
    if (is_dropped) landing.resize(draw_.Below(landing.size() + 1));
    std::vector<float> expected = expected_;
    for (const BlockId id : landing) {
      const BlockRange& block = map_.blocks()[id];
      const auto value = static_cast<float>(pull * 1000 + draw_.Below(1000));
      std::fill_n(host.begin() + block.offset, block.length, value);
      std::fill_n(expected.begin() + block.offset, block.length, value);
      inbox_->Landed(id);
      draw_.MaybeStep(link_.get());
      LookWhenComputed();
    }
    if (is_dropped) return;
    statuses->push_back(inbox_->TakeOver());
    if (!statuses->back().ok()) return;
    expected_ = std::move(expected);
    LookWhenComputed();
  }

  // Appends a kernel that expects the values of the last pull that was taken over.
  void LookWhenComputed() {
    link_->Compute([this, expected = expected_] { EXPECT_EQ(values_, expected); });
  }

  Draw draw_;
  const ModelLayout layout_;
  const BlockMap map_;
  std::array<std::vector<float>, 2> hosts_;
  std::vector<float> staging_;
  std::vector<float> values_;
  std::vector<float> expected_;
  std::unique_ptr<FakeLink> link_;
  std::unique_ptr<ValueUploader> inbox_;
};

TEST(ValueUploaderTest, KernelsReadTheLastPullsValuesAndErrorsAppearOnce) {
  PlaySeeds<InboxScene>();
}

// Four blocks of one element.
class InboxTest : public ::testing::Test {
 protected:
  InboxTest() {
    std::vector<Segment> segments(1);
    segments[0].name = "w";
    segments[0].shape = {4};
    map_ = *BlockMap::Create(*ModelLayout::Create(segments), /*block_bytes=*/4, /*servers=*/1);
  }

  ValueUploader::Options OptionsWith(DeviceLink* link, int64_t least_copy_bytes) {
    ValueUploader::Options options;
    options.link = link;
    options.block_map = &map_;
    options.staging = absl::MakeSpan(staging_);
    options.values = absl::MakeSpan(values_);
    options.least_copy_bytes = least_copy_bytes;
    return options;
  }

  BlockMap map_;
  std::vector<float> host_ = std::vector<float>(4, 7.0f);
  std::vector<float> staging_ = std::vector<float>(4);
  std::vector<float> values_ = std::vector<float>(4);
};

TEST_F(InboxTest, UploadsABlockBeforeThePullEnds) {
  FakeLink link(FakeLink::Options{});
  ValueUploader inbox(OptionsWith(&link, /*least_copy_bytes=*/1));
  ASSERT_TRUE(inbox.Begin(host_).ok());
  inbox.Landed(2);
  while (link.Step()) {
  }
  EXPECT_EQ(staging_[2], 7.0f);
  EXPECT_THAT(values_, Each(0.0f));
}

// The staging vector's memory may have belonged to another tensor, which earlier computation still
// reads.
TEST_F(InboxTest, TheFirstUploadWaitsForEarlierComputation) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    staging_.assign(4, 3.0f);
    FakeLink link({seed});
    ValueUploader inbox(OptionsWith(&link, /*least_copy_bytes=*/1));
    std::vector<float> found;
    link.Compute([&] { found = staging_; });
    ASSERT_TRUE(inbox.Begin(host_).ok());
    inbox.Landed(2);
    while (link.Step()) {
    }
    ASSERT_THAT(found, ElementsAre(3, 3, 3, 3)) << "seed " << seed;
    EXPECT_EQ(staging_[2], 7.0f);
  }
}

TEST_F(InboxTest, UploadsTheRemainingBlocksAtTakeover) {
  FakeLink link(FakeLink::Options{});
  ValueUploader inbox(OptionsWith(&link, /*least_copy_bytes=*/1 << 20));
  ASSERT_TRUE(inbox.Begin(host_).ok());
  EXPECT_EQ(inbox.host(), host_.data());
  for (const BlockId block : {0, 1, 3}) inbox.Landed(block);
  ASSERT_TRUE(inbox.TakeOver().ok());
  EXPECT_EQ(inbox.host(), nullptr);
  while (link.Step()) {
  }
  EXPECT_THAT(values_, ElementsAre(7, 7, 0, 7));
}

}  // namespace
}  // namespace torchps
