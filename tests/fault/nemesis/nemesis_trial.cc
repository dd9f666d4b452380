#include "tests/fault/nemesis/nemesis_trial.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/fault/nemesis/nemesis_stalls.h"
#include "tests/testing/eventually.h"
#include "torchps/common/hash.h"
#include "torchps/common/types.h"

namespace torchps {
namespace {

using Blow = NemesisCluster::Blow;

constexpr absl::Duration kPatience = absl::Seconds(120);
constexpr absl::Duration kLength = absl::Seconds(10);
// The other slots wait for a dead slot until the slot's lease expires.
constexpr absl::Duration kLongestStall = absl::Seconds(NemesisJob::kLeaseSeconds + 2);
constexpr absl::Duration kLongestStallOnABusyMachine = absl::Seconds(30);

template <typename T>
T FromEnvironment(const char* name, T otherwise) {
  T value = otherwise;
  const char* const wish = std::getenv(name);
  if (wish != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(wish, &value)) << name << "=" << wish;
  }
  return value;
}

// Returns the number of steps of a long trial; 0: the trial is short.
int64_t GetPushes() { return FromEnvironment<int64_t>("TORCHPS_NEMESIS_PUSHES", 0); }

int64_t GetSteps(const std::vector<NemesisBook>& accounting) {
  int64_t steps = 0;
  for (const NemesisBook& book : accounting) steps += book.steps;
  return steps;
}

}  // namespace

NemesisTrial::NemesisTrial(Options options) : options_(std::move(options)) {
  NemesisCluster::Options cluster;
  cluster.level = options_.level;
  cluster.seed = FromEnvironment<uint64_t>("TORCHPS_NEMESIS_SEED", 1);
  cluster.workers = options_.workers;
  cluster.long_freezes = GetPushes() > 0;
  cluster.folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", options_.name);
  std::filesystem::create_directories(cluster.folder);
  std::printf("case %s, seed %lu\n", options_.name, cluster.seed);
  random_ = cluster.seed + 1;
  cluster_ = std::make_unique<NemesisCluster>(cluster);
}

NemesisTrial::~NemesisTrial() = default;

NemesisCluster::Blow NemesisTrial::NextBlow() {
  if (deck_.empty()) {
    for (int i = 0; i < NemesisCluster::kBlows; ++i) {
      const Blow blow = static_cast<Blow>(i);
      const bool kills_server = blow == Blow::kKillServer || blow == Blow::kSlowReturn;
      if (kills_server && !options_.kills_servers) continue;
      if (blow == Blow::kLoseDisk && !cluster_->has_copies()) continue;
      deck_.push_back(blow);
    }
    for (size_t i = deck_.size(); i > 1; --i) {
      std::swap(deck_[i - 1], deck_[UniformBelow(random_, i)]);
    }
  }
  const Blow blow = deck_.back();
  deck_.pop_back();
  return blow;
}

void NemesisTrial::JudgeStalls(const std::vector<NemesisBook>& accounting) {
  std::vector<std::vector<absl::Duration>> done;
  for (const NemesisBook& book : accounting) done.push_back(book.done);
  const NemesisStalls::Verdict verdict = cluster_->stalls().Judge(done);
  std::printf(
      "longest stall of a slot without a fault: %.2f s, not counting the time that a server was "
      "away (slot %d, %.1f s after the start), %.2f s including that time; %ld intervals between "
      "steps were judged, %ld were explained by a fault of the slot\n",
      absl::ToDoubleSeconds(verdict.longest), verdict.slot,
      absl::ToDoubleSeconds(verdict.at - began_), absl::ToDoubleSeconds(verdict.longest_in_all),
      verdict.judged, verdict.explained);
  EXPECT_LE(verdict.longest, GetPushes() > 0 ? kLongestStall : kLongestStallOnABusyMachine);
  EXPECT_GT(verdict.judged, 10 * verdict.explained) << "too few intervals were judged";
}

void NemesisTrial::Audit(const std::vector<NemesisBook>& accounting) {
  const std::vector<std::vector<float>> values = cluster_->Values();
  int64_t lost = 0;
  int64_t doubled = 0;
  int64_t unknown = 0;
  for (BlockId id = 0; id < NemesisJob::kBlocks; ++id) {
    ASSERT_EQ(values[id].size(), NemesisJob::kBlockElements) << "block " << id;
    for (SlotId slot = 0; slot < NemesisJob::kSlots; ++slot) {
      const NemesisBook::Block& block = accounting[slot].blocks[id];
      unknown += static_cast<int64_t>(block.unknown.size());
      for (int modulus = 0; modulus < 2; ++modulus) {
        const int size = NemesisJob::kModulus[modulus];
        std::vector<int64_t> least(size);
        std::vector<int64_t> most(size);
        for (const Step step : block.present) ++least[step % size], ++most[step % size];
        for (const Step step : block.unknown) ++most[step % size];
        int64_t few = 0;
        int64_t many = 0;
        for (int remainder = 0; remainder < size; ++remainder) {
          const float value = values[id][NemesisJob::Counter(slot, modulus, remainder)];
          const auto found = static_cast<int64_t>(value);
          EXPECT_EQ(static_cast<float>(found), value) << "part of a push in block " << id;
          few += std::max<int64_t>(0, least[remainder] - found);
          many += std::max<int64_t>(0, found - most[remainder]);
        }
        EXPECT_EQ(few, 0) << "lost pushes of slot " << slot << " in block " << id << " modulo "
                          << size;
        EXPECT_EQ(many, 0) << "doubled pushes of slot " << slot << " in block " << id << " modulo "
                           << size;
        if (modulus == 0) lost += few, doubled += many;
      }
    }
  }
  int64_t acknowledged = 0;
  int64_t rolled_back = 0;
  std::printf("slot processes steps acknowledged refused rolled back server restarts\n");
  for (SlotId slot = 0; slot < NemesisJob::kSlots; ++slot) {
    const NemesisBook& book = accounting[slot];
    std::printf("%4d %9ld %5ld %12ld %7ld %11ld %15ld\n", slot, book.incarnations, book.steps,
                book.acknowledged, book.refused, book.rolled_back, book.restored_lives);
    acknowledged += book.acknowledged;
    rolled_back += book.rolled_back;
    for (const std::string& broken : book.broken_promises) ADD_FAILURE() << broken;
  }
  std::printf(
      "(slot, step, block): acknowledged %ld, reported rolled back %ld, lost beyond "
      "that %ld, doubled %ld; never answered %ld\n",
      acknowledged, rolled_back, lost, doubled, unknown);
  if (options_.level != DurabilitySpec::CHECKPOINT) {
    EXPECT_EQ(rolled_back, 0);
  }
}

void NemesisTrial::Run() {
  ASSERT_FALSE(testing::Test::HasFailure());
  const int64_t pushes = GetPushes();
  ASSERT_NO_FATAL_FAILURE(cluster_->AwaitTraining());
  if (options_.level == DurabilitySpec::CHECKPOINT) {
    // Before the first checkpoint a server cannot be restored.
    ASSERT_TRUE(Eventually([this] { return cluster_->StatusOfJob().checkpoint().number() > 0; },
                           kPatience));
  }

  began_ = cluster_->now();
  absl::Duration next_blow = began_;
  absl::Duration next_look = began_;
  const absl::Duration longest = pushes > 0 ? absl::Hours(2) : kLength;
  ASSERT_TRUE(Eventually(
      [&] {
        if (!cluster_->Supervise()) return true;
        const absl::Duration now = cluster_->now();
        if (now >= next_blow) {
          cluster_->Strike(NextBlow());
          next_blow = now + absl::Milliseconds(500 + UniformBelow(random_, 1500));
        }
        if (pushes == 0) {
          // On a slow machine the time may end before a link has failed. The trial then continues
          // until one has.
          const bool waits = cluster_->has_links() && cluster_->broken_links() == 0;
          return now - began_ >= longest && !waits;
        }
        if (now < next_look) return false;
        next_look = now + absl::Seconds(5);
        return GetSteps(cluster_->Books()) >= pushes;
      },
      longest + kPatience));
  ASSERT_FALSE(testing::Test::HasFailure());
  std::printf("%.1f s of faults\n", absl::ToDoubleSeconds(cluster_->now() - began_));

  // Without further faults, each slot must push again.
  cluster_->Heal();
  const std::vector<NemesisBook> before = cluster_->Books();
  ASSERT_TRUE(Eventually(
      [&] {
        if (!cluster_->Supervise()) return true;
        const std::vector<NemesisBook> accounting = cluster_->Books();
        for (int i = 0; i < NemesisJob::kSlots; ++i) {
          if (accounting[i].steps < before[i].steps + 20) return false;
        }
        return true;
      },
      kPatience));
  ASSERT_FALSE(testing::Test::HasFailure());
  cluster_->StopWorkers();
  std::printf("%s\n", cluster_->Tally().c_str());
  const std::vector<NemesisBook> accounting = cluster_->Books();
  if (cluster_->has_links()) {
    EXPECT_GT(cluster_->broken_links(), 0);
  }
  Audit(accounting);
  JudgeStalls(accounting);
  cluster_->StopServers();
}

}  // namespace torchps
