#include "torchps/server/coordinator/data_leases.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

constexpr SlotHolder kAnna{0, 11};
constexpr SlotHolder kBert{1, 12};

DataLeases::Options TenSamplesInFours() {
  DataLeases::Options options;
  options.samples = 10;
  options.epochs = 2;
  return options;
}
// The lease is for two pushes with two samples each.
constexpr DataLeases::Size kFour{/*push_samples=*/2, /*pushes=*/2};

// Returns "epoch: begin-end", with a star if the range was handed out before.
std::string Words(const std::optional<DataLeases::Lease>& lease) {
  if (!lease.has_value()) return "none";
  return absl::StrCat(lease->range.epoch, ": ", lease->range.begin, "-", lease->range.end,
                      lease->reissued ? "*" : "");
}

DataLeases::Finished FinishOrDie(DataLeases& leases, uint64_t id, SlotHolder holder) {
  const absl::StatusOr<DataLeases::Finished> finished = leases.Finish(id, holder);
  EXPECT_TRUE(finished.ok()) << finished.status();
  return finished.value_or(DataLeases::Finished{});
}

TEST(DataLeasesTest, HandsOutRangesInOrder) {
  DataLeases leases(TenSamplesInFours());
  EXPECT_EQ(Words(leases.Take(kAnna, kFour)), "1: 0-4");
  EXPECT_EQ(Words(leases.Take(kBert, kFour)), "1: 4-8");
  EXPECT_EQ(Words(leases.Take(kAnna, kFour)), "1: 8-10");
}

TEST(DataLeasesTest, TheNextEpochBeginsWhileLeasesOfThePreviousAreOut) {
  DataLeases leases(TenSamplesInFours());
  for (int i = 0; i < 3; ++i) leases.Take(kAnna, kFour);
  EXPECT_EQ(Words(leases.Take(kBert, kFour)), "2: 0-4");
  ASSERT_EQ(leases.accounting().size(), 2u);
  EXPECT_EQ(leases.accounting()[0].outstanding, 10);
  EXPECT_FALSE(leases.accounting()[0].closed);
}

TEST(DataLeasesTest, ReportsTheCloseOfAnEpochOnce) {
  DataLeases leases(TenSamplesInFours());
  std::vector<uint64_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(leases.Take(kAnna, kFour)->id);
  EXPECT_FALSE(FinishOrDie(leases, ids[2], kAnna).closed_epoch);
  EXPECT_FALSE(FinishOrDie(leases, ids[0], kAnna).closed_epoch);
  const DataLeases::Finished last = FinishOrDie(leases, ids[1], kAnna);
  EXPECT_TRUE(last.counted);
  EXPECT_TRUE(last.closed_epoch);
  EXPECT_EQ(last.epoch, 1);
  EXPECT_TRUE(leases.accounting()[0].closed);
  EXPECT_FALSE(leases.Complete());
}

TEST(DataLeasesTest, HandsOutNothingAfterTheLastEpoch) {
  DataLeases leases(TenSamplesInFours());
  while (const auto lease = leases.Take(kAnna, kFour)) FinishOrDie(leases, lease->id, kAnna);
  EXPECT_TRUE(leases.Complete());
  EXPECT_EQ(Words(leases.Take(kBert, kFour)), "none");
  ASSERT_EQ(leases.accounting().size(), 2u);
  EXPECT_EQ(leases.accounting()[1].used, 10);
}

TEST(DataLeasesTest, HandsOutReleasedRangesFirst) {
  DataLeases leases(TenSamplesInFours());
  leases.Take(kAnna, kFour);
  leases.Take(kBert, kFour);
  leases.Take(kAnna, kFour);
  EXPECT_EQ(leases.Release(kAnna), 6);
  EXPECT_EQ(leases.accounting()[0].unissued, 6);
  EXPECT_EQ(Words(leases.Take(kBert, kFour)), "1: 0-4*");
  EXPECT_EQ(Words(leases.Take(kBert, kFour)), "1: 8-10*");
  EXPECT_EQ(Words(leases.Take(kBert, kFour)), "2: 0-4");
  EXPECT_EQ(leases.accounting()[0].reissued, 6);
}

TEST(DataLeasesTest, AReleasedRangeIsHandedOutAgainBeforeTheDataAreComplete) {
  DataLeases leases(TenSamplesInFours());
  const uint64_t kept = leases.Take(kAnna, kFour)->id;
  while (const auto lease = leases.Take(kBert, kFour)) FinishOrDie(leases, lease->id, kBert);
  EXPECT_FALSE(leases.Complete());
  leases.Release(kAnna);
  EXPECT_FALSE(leases.Complete());
  const auto again = leases.Take(kBert, kFour);
  EXPECT_EQ(Words(again), "1: 0-4*");
  EXPECT_NE(again->id, kept);
  FinishOrDie(leases, again->id, kBert);
  EXPECT_TRUE(leases.Complete());
}

TEST(DataLeasesTest, ALeaseFinishedTwiceCountsOnce) {
  DataLeases leases(TenSamplesInFours());
  const uint64_t id = leases.Take(kAnna, kFour)->id;
  EXPECT_TRUE(FinishOrDie(leases, id, kAnna).counted);
  EXPECT_FALSE(FinishOrDie(leases, id, kAnna).counted);
  EXPECT_EQ(leases.accounting()[0].used, 4);
}

TEST(DataLeasesTest, IgnoresAFinishOfAReassignedRange) {
  DataLeases leases(TenSamplesInFours());
  const uint64_t lost = leases.Take(kAnna, kFour)->id;
  leases.Release(kAnna);
  EXPECT_FALSE(FinishOrDie(leases, lost, kAnna).counted) << "released";
  const uint64_t again = leases.Take(kBert, kFour)->id;
  EXPECT_FALSE(FinishOrDie(leases, lost, kAnna).counted) << "reassigned";
  EXPECT_TRUE(FinishOrDie(leases, again, kBert).counted);
  EXPECT_EQ(leases.accounting()[0].used, 4);
}

TEST(DataLeasesTest, AnotherIncarnationCannotFinishALease) {
  DataLeases leases(TenSamplesInFours());
  const uint64_t id = leases.Take(kAnna, kFour)->id;
  EXPECT_FALSE(FinishOrDie(leases, id, SlotHolder{kAnna.slot, kAnna.incarnation + 1}).counted);
  EXPECT_TRUE(FinishOrDie(leases, id, kAnna).counted);
}

TEST(DataLeasesTest, RejectsAnUnknownLease) {
  DataLeases leases(TenSamplesInFours());
  leases.Take(kAnna, kFour);
  EXPECT_EQ(leases.Finish(0, kAnna).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(leases.Finish(2, kAnna).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DataLeasesTest, MaxPushesShortensTheLastLeaseAndClosesItsEpoch) {
  DataLeases::Options options = TenSamplesInFours();
  options.max_pushes = 6;  // epoch 1 has 2 + 2 + 1 pushes, so one is left for epoch 2
  DataLeases leases(options);
  std::vector<uint64_t> ids;
  for (const char* words : {"1: 0-4", "1: 4-8", "1: 8-10", "2: 0-2"}) {
    const auto lease = leases.Take(kAnna, kFour);
    EXPECT_EQ(Words(lease), words);
    ids.push_back(lease->id);
  }
  EXPECT_EQ(Words(leases.Take(kAnna, kFour)), "none");
  EXPECT_FALSE(leases.Complete());
  EXPECT_TRUE(FinishOrDie(leases, ids[3], kAnna).closed_epoch);
  for (int i = 0; i < 3; ++i) FinishOrDie(leases, ids[i], kAnna);
  EXPECT_TRUE(leases.Complete());
  EXPECT_EQ(leases.accounting()[1].used, 2);
  EXPECT_EQ(leases.accounting()[1].unissued, 8);
  EXPECT_TRUE(leases.accounting()[1].closed);
}

TEST(DataLeasesTest, MaxPushesIgnoresReissuedRanges) {
  DataLeases::Options options = TenSamplesInFours();
  options.max_pushes = 3;
  DataLeases leases(options);
  leases.Take(kAnna, kFour);
  leases.Release(kAnna);
  EXPECT_EQ(Words(leases.Take(kBert, kFour)), "1: 0-4*");
  EXPECT_EQ(Words(leases.Take(kBert, kFour)), "1: 4-6");
  EXPECT_EQ(Words(leases.Take(kBert, kFour)), "none");
}

TEST(DataLeasesTest, MaxPushesAtTheEndOfAnEpochBeginsNoOtherEpoch) {
  DataLeases::Options options = TenSamplesInFours();
  options.max_pushes = 5;
  DataLeases leases(options);
  while (const auto lease = leases.Take(kAnna, kFour)) FinishOrDie(leases, lease->id, kAnna);
  EXPECT_TRUE(leases.Complete());
  EXPECT_EQ(leases.accounting().size(), 1u);
  EXPECT_EQ(leases.accounting()[0].used, 10);
}

TEST(DataLeasesTest, EachHolderChoosesTheLeaseSize) {
  DataLeases leases(TenSamplesInFours());
  EXPECT_EQ(Words(leases.Take(kAnna, {/*push_samples=*/3, /*pushes=*/1})), "1: 0-3");
  EXPECT_EQ(Words(leases.Take(kBert, {/*push_samples=*/1, /*pushes=*/5})), "1: 3-8");
  EXPECT_EQ(Words(leases.Take(kBert, {/*push_samples=*/1, /*pushes=*/5})), "1: 8-10");
}

TEST(DataLeasesTest, CutsReturnedRangesToTheNextHoldersSize) {
  DataLeases leases(TenSamplesInFours());
  leases.Take(kAnna, {/*push_samples=*/8, /*pushes=*/1});
  leases.Release(kAnna);
  EXPECT_EQ(Words(leases.Take(kBert, {/*push_samples=*/3, /*pushes=*/1})), "1: 0-3*");
  EXPECT_EQ(Words(leases.Take(kBert, {/*push_samples=*/9, /*pushes=*/1})), "1: 3-8*");
  EXPECT_EQ(leases.accounting()[0].reissued, 8);
}

// Returns the leases of one epoch with `samples` samples.
std::vector<std::string> Cut(int64_t samples, DataLeases::Size size, int64_t step_samples = 0) {
  DataLeases::Options options;
  options.samples = samples;
  options.step_samples = step_samples;
  DataLeases leases(options);
  std::vector<std::string> all;
  while (const auto lease = leases.Take(kAnna, size)) all.push_back(Words(lease));
  return all;
}

TEST(DataLeasesTest, AvoidsPushesOfASingleSample) {
  using Leases = std::vector<std::string>;
  EXPECT_EQ(Cut(17, {/*push_samples=*/8, /*pushes=*/1}), (Leases{"1: 0-8", "1: 8-15", "1: 15-17"}));
  EXPECT_EQ(Cut(17, {8, 2}), (Leases{"1: 0-15", "1: 15-17"}));
  EXPECT_EQ(Cut(17, {8, 4}), (Leases{"1: 0-15", "1: 15-17"}));
  EXPECT_EQ(Cut(4, {3, 1}), (Leases{"1: 0-2", "1: 2-4"}));
  // These sizes leave no other choice.
  EXPECT_EQ(Cut(1, {8, 4}), (Leases{"1: 0-1"}));
  EXPECT_EQ(Cut(3, {1, 1}), (Leases{"1: 0-1", "1: 1-2", "1: 2-3"}));
  EXPECT_EQ(Cut(3, {2, 1}), (Leases{"1: 0-2", "1: 2-3"}));
}

TEST(DataLeasesTest, SplitsAnIncompleteLastStepAmongAllSlots) {
  using Leases = std::vector<std::string>;
  const auto cut = [](int64_t samples, int64_t share) {
    return Cut(samples, {share, /*pushes=*/1}, /*step_samples=*/30);
  };
  EXPECT_EQ(cut(40, 10),
            (Leases{"1: 0-10", "1: 10-20", "1: 20-30", "1: 30-34", "1: 34-38", "1: 38-40"}));
  EXPECT_EQ(cut(60, 20), (Leases{"1: 0-20", "1: 20-40", "1: 40-60"}));
  EXPECT_EQ(cut(33, 10), (Leases{"1: 0-10", "1: 10-20", "1: 20-30", "1: 30-33"}));
  EXPECT_EQ(cut(31, 10), (Leases{"1: 0-10", "1: 10-20", "1: 20-29", "1: 29-31"}));
  EXPECT_EQ(cut(5, 10), (Leases{"1: 0-3", "1: 3-5"}));
  EXPECT_EQ(cut(40, 30), (Leases{"1: 0-30", "1: 30-40"}));
  // 20 does not divide the 30 samples of a step, as after a change of the shares. The lease ends
  // with the last whole step.
  EXPECT_EQ(cut(40, 20), (Leases{"1: 0-20", "1: 20-30", "1: 30-37", "1: 37-40"}));
}

TEST(DataLeasesTest, SharesOfTheLastStepAddUp) {
  DataLeases::Options options;
  options.step_samples = 32;
  for (int64_t samples = 33; samples < 64; ++samples) {
    options.samples = samples;
    for (const int64_t push : {2, 8, 11, 32}) {
      DataLeases leases(options);
      int64_t shares = 0;
      while (const auto lease = leases.Take(kAnna, {push, 1})) {
        EXPECT_TRUE(lease->share == 0 || lease->share >= lease->range.size());
        shares += lease->share;
        EXPECT_EQ(leases.LastStepIsOut(), lease->range.end == samples);
      }
      EXPECT_EQ(shares, 32) << samples << " in pushes of " << push;
    }
  }
}

TEST(DataLeasesTest, AvoidsASingleSampleFromAReturnedRange) {
  DataLeases::Options options;
  options.samples = 9;
  DataLeases leases(options);
  leases.Take(kAnna, {9, 1});
  leases.Release(kAnna);
  EXPECT_EQ(Words(leases.Take(kBert, {4, 2})), "1: 0-7*");
  EXPECT_EQ(Words(leases.Take(kBert, {4, 2})), "1: 7-9*");
}

// Leases all `samples` samples as one range, hands the range back, and returns the leases that are
// cut from it next.
std::vector<std::string> CutAgain(int64_t samples, DataLeases::Size size) {
  DataLeases::Options options;
  options.samples = samples;
  DataLeases leases(options);
  leases.Take(kAnna, {samples, 1});
  leases.Release(kAnna);
  std::vector<std::string> all;
  while (const auto lease = leases.Take(kBert, size)) all.push_back(Words(lease));
  return all;
}

TEST(DataLeasesTest, AvoidsSingleSamplePiecesOfReturnedRanges) {
  using Leases = std::vector<std::string>;
  EXPECT_EQ(CutAgain(3, {/*push_samples=*/2, /*pushes=*/1}), (Leases{"1: 0-3*"}));
  EXPECT_EQ(CutAgain(5, {2, 1}), (Leases{"1: 0-2*", "1: 2-5*"}));
  EXPECT_EQ(CutAgain(6, {2, 1}), (Leases{"1: 0-2*", "1: 2-4*", "1: 4-6*"}));
  EXPECT_EQ(CutAgain(7, {2, 4}), (Leases{"1: 0-4*", "1: 4-7*"}));
  EXPECT_EQ(CutAgain(9, {2, 2}), (Leases{"1: 0-4*", "1: 4-6*", "1: 6-9*"}));
  EXPECT_EQ(CutAgain(4, {3, 1}), (Leases{"1: 0-2*", "1: 2-4*"}));
  // These sizes leave no other choice.
  EXPECT_EQ(CutAgain(1, {2, 1}), (Leases{"1: 0-1*"}));
  EXPECT_EQ(CutAgain(1, {8, 4}), (Leases{"1: 0-1*"}));
  EXPECT_EQ(CutAgain(2, {1, 1}), (Leases{"1: 0-1*", "1: 1-2*"}));
}

TEST(DataLeasesTest, MergesAdjacentReturnedRanges) {
  DataLeases leases(TenSamplesInFours());
  const auto first = leases.Take(kAnna, {/*push_samples=*/3, /*pushes=*/1});
  const auto second = leases.Take(kBert, {3, 1});
  const auto third = leases.Take(kAnna, {4, 1});
  leases.Take(kAnna, {4, 1});  // a range of the next epoch
  ASSERT_TRUE(leases.Finish(second->id, kBert, {{0, 1}, {2, 3}}).ok());
  ASSERT_TRUE(leases.Finish(first->id, kAnna, {{2, 3}}).ok());
  ASSERT_TRUE(leases.Finish(third->id, kAnna, {{0, 1}, {3, 4}}).ok());
  leases.Release(kAnna);
  DataLeases restored(TenSamplesInFours());
  ASSERT_TRUE(restored.Restore(leases.Save()).ok());
  for (DataLeases* of : {&leases, &restored}) {
    EXPECT_EQ(Words(of->Take(kBert, {8, 1})), "1: 2-4*") << "the end of one lease and the next";
    EXPECT_EQ(Words(of->Take(kBert, {8, 1})), "1: 5-7*");
    EXPECT_EQ(Words(of->Take(kBert, {8, 1})), "1: 9-10*") << "not merged with the next epoch";
    EXPECT_EQ(Words(of->Take(kBert, {8, 1})), "2: 0-4*");
    EXPECT_EQ(of->accounting()[0].unissued, 0);
  }
}

TEST(DataLeasesTest, MergesARestoredRangeWithItsNeighbours) {
  DataLeases leases(TenSamplesInFours());
  leases.Take(kAnna, {/*push_samples=*/4, /*pushes=*/1});
  leases.Release(kAnna);
  DataLeasesState state = leases.Save();
  ASSERT_EQ(state.returned_size(), 1);
  state.mutable_returned(0)->set_end(1);
  DataRange& rest = *state.add_returned();
  rest = state.returned(0);
  rest.set_begin(1);
  rest.set_end(4);
  DataLeases restored(TenSamplesInFours());
  ASSERT_TRUE(restored.Restore(state).ok());
  EXPECT_EQ(Words(restored.Take(kBert, {8, 1})), "1: 0-4*");
}

TEST(DataLeasesTest, MaxPushesCountsPushesOfAnySize) {
  DataLeases::Options options = TenSamplesInFours();
  options.max_pushes = 4;
  DataLeases leases(options);
  EXPECT_EQ(Words(leases.Take(kAnna, {/*push_samples=*/5, /*pushes=*/1})), "1: 0-5");
  EXPECT_EQ(Words(leases.Take(kBert, {/*push_samples=*/1, /*pushes=*/2})), "1: 5-7");
  EXPECT_EQ(Words(leases.Take(kAnna, {/*push_samples=*/2, /*pushes=*/5})), "1: 7-9");
  EXPECT_EQ(Words(leases.Take(kAnna, kFour)), "none");
}

TEST(DataLeasesTest, ReissuesLostPartsAndKeepsTheEpochOpen) {
  DataLeases::Options options = TenSamplesInFours();
  options.epochs = 1;
  DataLeases leases(options);
  const auto lease = leases.Take(kAnna, {/*push_samples=*/10, /*pushes=*/1});
  const absl::StatusOr<DataLeases::Finished> finished =
      leases.Finish(lease->id, kAnna, {{0, 2}, {6, 7}});
  ASSERT_TRUE(finished.ok()) << finished.status();
  EXPECT_TRUE(finished->counted);
  EXPECT_FALSE(finished->closed_epoch);
  EXPECT_EQ(leases.accounting()[0].used, 7);
  EXPECT_EQ(leases.accounting()[0].lost, 3);
  EXPECT_EQ(leases.accounting()[0].unissued, 3);
  EXPECT_FALSE(leases.Complete());

  const auto first = leases.Take(kBert, kFour);
  EXPECT_EQ(Words(first), "1: 0-2*");
  const auto second = leases.Take(kBert, kFour);
  EXPECT_EQ(Words(second), "1: 6-7*");
  EXPECT_FALSE(FinishOrDie(leases, first->id, kBert).closed_epoch);
  EXPECT_TRUE(FinishOrDie(leases, second->id, kBert).closed_epoch);
  EXPECT_TRUE(leases.Complete());
}

TEST(DataLeasesTest, RejectsInvalidPartsWithoutSideEffects) {
  DataLeases leases(TenSamplesInFours());
  const uint64_t id = leases.Take(kAnna, kFour)->id;
  const std::vector<std::vector<DataLeases::Part>> wrong = {
      {{-1, 1}}, {{2, 2}}, {{3, 5}}, {{2, 3}, {0, 1}}, {{0, 2}, {1, 3}}};
  for (const std::vector<DataLeases::Part>& parts : wrong) {
    EXPECT_EQ(leases.Finish(id, kAnna, parts).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(FinishOrDie(leases, id, kAnna).counted);
  EXPECT_EQ(leases.accounting()[0].used, 4);
}

TEST(DataLeasesTest, ALeaseContainsTheJobProgress) {
  DataLeases leases(TenSamplesInFours());
  const auto first = leases.Take(kAnna, {/*push_samples=*/5, /*pushes=*/1});
  EXPECT_DOUBLE_EQ(first->progress_begin, 0);
  EXPECT_DOUBLE_EQ(first->progress_end, 0.25);
  leases.Take(kBert, {/*push_samples=*/5, /*pushes=*/1});
  leases.Release(kAnna);
  const auto again = leases.Take(kBert, {/*push_samples=*/5, /*pushes=*/1});
  EXPECT_DOUBLE_EQ(again->progress_begin, 0.5) << "the progress does not decrease";
  EXPECT_DOUBLE_EQ(again->progress_end, 0.5);
}

TEST(DataLeasesTest, ProgressReachesOneAtMaxPushes) {
  DataLeases::Options options = TenSamplesInFours();
  options.max_pushes = 4;
  DataLeases leases(options);
  EXPECT_DOUBLE_EQ(leases.Take(kAnna, kFour)->progress_end, 0.5);
  EXPECT_DOUBLE_EQ(leases.Take(kAnna, kFour)->progress_end, 1);
}

// In any order of leases, reports, repeated reports and deaths, the accounting balances after each
// step. At the end each position was used exactly once.
TEST(DataLeasesTest, AccountingBalancesUnderRandomSchedules) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    uint64_t random = seed;
    DataLeases::Options options;
    options.samples = 1 + static_cast<int64_t>(UniformBelow(random, 60));
    options.epochs = 1 + static_cast<int>(UniformBelow(random, 4));
    // The index is the slot. The size of a slot's leases changes now and then.
    std::vector<DataLeases::Size> sizes;
    const auto any_size = [&] {
      return DataLeases::Size{1 + static_cast<int64_t>(UniformBelow(random, 6)),
                              1 + static_cast<int64_t>(UniformBelow(random, 3))};
    };
    for (SlotId slot = 0; slot < 4; ++slot) sizes.push_back(any_size());
    const bool cut = UniformBelow(random, 3) == 0;
    options.max_pushes = cut ? 1 + static_cast<int64_t>(UniformBelow(random, 40)) : 0;
    DataLeases leases(options);

    std::map<uint64_t, std::pair<DataLeases::Range, SlotHolder>> in_hand;
    std::vector<std::pair<uint64_t, SlotHolder>> past;  // leases that were finished or lost
    std::set<std::pair<int, int64_t>> used;
    int64_t taken_again = 0, lost_samples = 0;
    int closed = 0;
    double progress = 0;
    std::vector<SlotHolder> holders;
    Incarnation next_incarnation = 1;
    for (SlotId slot = 0; slot < 4; ++slot) holders.push_back({slot, next_incarnation++});

    for (int step = 0; !leases.Complete(); ++step) {
      ASSERT_LT(step, 100000) << "the schedule does not end";
      SlotHolder& holder = holders[UniformBelow(random, holders.size())];
      switch (UniformBelow(random, 8)) {
        case 0: {  // the process dies, and another one takes over the slot
          int64_t lost = 0;
          for (auto it = in_hand.begin(); it != in_hand.end();) {
            if (!(it->second.second == holder)) {
              ++it;
              continue;
            }
            lost += it->second.first.size();
            past.emplace_back(it->first, holder);
            it = in_hand.erase(it);
          }
          EXPECT_EQ(leases.Release(holder), lost);
          holder.incarnation = next_incarnation++;
          break;
        }
        case 1: {  // a repeated report
          if (past.empty()) break;
          const auto& [id, old_holder] = past[UniformBelow(random, past.size())];
          EXPECT_FALSE(FinishOrDie(leases, id, old_holder).counted);
          break;
        }
        case 2:
        case 3:
        case 4: {
          DataLeases::Size& size = sizes[holder.slot];
          if (UniformBelow(random, 8) == 0) size = any_size();
          EXPECT_TRUE(leases.HasMore() || !leases.Take(holder, size).has_value());
          if (const auto lease = leases.Take(holder, size)) {
            EXPECT_GT(lease->range.size(), 0);
            const bool is_three =
                lease->reissued && lease->range.size() == 3 && size.push_samples == 2;
            EXPECT_TRUE(is_three || lease->range.size() <= size.push_samples * size.pushes);
            EXPECT_GE(lease->progress_begin, progress);
            EXPECT_GE(lease->progress_end, lease->progress_begin);
            EXPECT_LE(lease->progress_end, 1);
            progress = lease->progress_end;
            if (lease->reissued) taken_again += lease->range.size();
            in_hand[lease->id] = {lease->range, holder};
          }
          break;
        }
        default: {
          if (in_hand.empty()) break;
          auto it = in_hand.begin();
          std::advance(it, UniformBelow(random, in_hand.size()));
          const auto [range, owner] = it->second;
          std::vector<DataLeases::Part> lost;
          if (UniformBelow(random, 4) == 0) {
            const int64_t begin = static_cast<int64_t>(UniformBelow(random, range.size()));
            lost.push_back(
                {begin,
                 begin + 1 + static_cast<int64_t>(UniformBelow(random, range.size() - begin))});
            lost_samples += lost[0].end - begin;
          }
          const absl::StatusOr<DataLeases::Finished> finished =
              leases.Finish(it->first, owner, lost);
          ASSERT_TRUE(finished.ok()) << finished.status();
          EXPECT_TRUE(finished->counted);
          EXPECT_EQ(finished->epoch, range.epoch);
          if (finished->closed_epoch) ++closed;
          for (int64_t position = range.begin; position < range.end; ++position) {
            const int64_t at = position - range.begin;
            if (!lost.empty() && at >= lost[0].begin && at < lost[0].end) continue;
            EXPECT_TRUE(used.insert({range.epoch, position}).second) << "used twice";
          }
          past.emplace_back(it->first, owner);
          in_hand.erase(it);
        }
      }
      for (const DataLeases::Books& accounting : leases.accounting()) {
        ASSERT_EQ(accounting.used + accounting.outstanding + accounting.unissued,
                  accounting.samples);
        ASSERT_GE(std::min({accounting.used, accounting.outstanding, accounting.unissued}), 0);
      }
    }

    int64_t counted = 0, counted_again = 0, counted_lost = 0;
    for (const DataLeases::Books& accounting : leases.accounting()) {
      EXPECT_TRUE(accounting.closed);
      EXPECT_EQ(accounting.outstanding, 0);
      counted += accounting.used;
      counted_again += accounting.reissued;
      counted_lost += accounting.lost;
    }
    EXPECT_EQ(counted_lost, lost_samples);
    EXPECT_EQ(counted, static_cast<int64_t>(used.size()));
    EXPECT_EQ(counted_again, taken_again);
    EXPECT_EQ(closed, static_cast<int>(leases.accounting().size()));
    if (!cut) {
      EXPECT_EQ(counted, options.samples * options.epochs);
    } else {
      EXPECT_LE(counted, options.max_pushes * 6);
    }
  }
}

}  // namespace
}  // namespace torchps
