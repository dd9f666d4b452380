// Exactly once while anything dies: servers and workers as processes, connections that are reset,
// SIGSTOP and SIGCONT, kill -9 of a random server or worker, servers that come back slowly, and
// parts of the network in which nothing passes; a blow every half to two seconds. For every (slot,
// step, block): applied once or not at all, and what was acknowledged is there, but for what a
// server that came back from a checkpoint has told to be lost. And a slot that no fault has hit
// stands still for a lease and two seconds at most, beyond the time that a server is away. The same
// where the gradients come from a device, and its link fails, which ends a worker.
//
// TORCHPS_NEMESIS_PUSHES says after how many steps of all slots together each case ends, in place
// of its seconds; TORCHPS_NEMESIS_SEED draws another schedule. Where neither a sanitizer nor other
// tests take the machine's time, TORCHPS_NEMESIS_PUSHES holds a stall to its two seconds; else it
// is held to what only a slot that nobody lets go on exceeds.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/split_mix64.h"
#include "gtest/gtest.h"
#include "rpc/grpc_process.h"
#include "tests/fault/nemesis/nemesis_cluster.h"
#include "tests/testing/eventually.h"

namespace torchps {
namespace {

using Blow = NemesisCluster::Blow;

constexpr absl::Duration kPatience = absl::Seconds(120);
// In a lease who is gone is still waited for.
constexpr absl::Duration kLongestStall = absl::Seconds(NemesisJob::kLeaseSeconds + 2);
constexpr absl::Duration kLongestStallOnABusyMachine = absl::Seconds(30);

struct NemesisCase {
  const char* name;
  DurabilitySpec::Level level;
  bool kills_servers;
  bool linked = false;
};

template <typename T>
T FromEnvironment(const char* name, T otherwise) {
  T value = otherwise;
  const char* const wish = std::getenv(name);
  if (wish != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(wish, &value)) << name << "=" << wish;
  }
  return value;
}

class NemesisTest : public ::testing::TestWithParam<NemesisCase> {
 protected:
  static void SetUpTestSuite() { PrepareGrpcProcess(); }

  void SetUp() override {
    NemesisCluster::Options options;
    options.level = GetParam().level;
    options.seed = FromEnvironment<uint64_t>("TORCHPS_NEMESIS_SEED", 1);
    options.linked = GetParam().linked;
    options.folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", GetParam().name);
    std::filesystem::create_directories(options.folder);
    std::printf("case %s, seed %lu\n", GetParam().name, options.seed);
    random_ = options.seed + 1;
    cluster_ = std::make_unique<NemesisCluster>(options);
    ASSERT_FALSE(HasFailure());
  }

  static int64_t StepsOf(const std::vector<NemesisBook>& books) {
    int64_t steps = 0;
    for (const NemesisBook& book : books) steps += book.steps;
    return steps;
  }

  // Each comes once before any comes again, so a short run has them all.
  Blow NextBlow() {
    if (deck_.empty()) {
      for (int i = 0; i < NemesisCluster::kBlows; ++i) {
        const Blow blow = static_cast<Blow>(i);
        const bool kills_server = blow == Blow::kKillServer || blow == Blow::kSlowReturn;
        if (!kills_server || GetParam().kills_servers) deck_.push_back(blow);
      }
      for (size_t i = deck_.size(); i > 1; --i) {
        std::swap(deck_[i - 1], deck_[UniformBelow(random_, i)]);
      }
    }
    const Blow blow = deck_.back();
    deck_.pop_back();
    return blow;
  }

  void JudgeStalls(const std::vector<NemesisBook>& books) {
    std::vector<std::vector<absl::Duration>> done;
    for (const NemesisBook& book : books) done.push_back(book.done);
    const NemesisStalls::Verdict verdict = cluster_->stalls().Judge(done);
    std::printf(
        "longest stall of a slot that no fault had hit: %.2f s beyond the time that a server was "
        "away (slot %d, %.1f s after the beginning), %.2f s with it; of %ld times between two "
        "steps, and %ld in which its own fault explains it\n",
        absl::ToDoubleSeconds(verdict.longest), verdict.slot,
        absl::ToDoubleSeconds(verdict.at - began_), absl::ToDoubleSeconds(verdict.longest_in_all),
        verdict.judged, verdict.explained);
    const bool alone = std::getenv("TORCHPS_NEMESIS_PUSHES") != nullptr;
    EXPECT_LE(verdict.longest, alone ? kLongestStall : kLongestStallOnABusyMachine);
    EXPECT_GT(verdict.judged, 10 * verdict.explained) << "hardly anything was judged";
  }

  void Audit(const std::vector<NemesisBook>& books) {
    const std::vector<std::vector<float>> values = cluster_->Values();
    int64_t lost = 0;
    int64_t doubled = 0;
    int64_t unknown = 0;
    for (BlockId id = 0; id < NemesisJob::kBlocks; ++id) {
      ASSERT_EQ(values[id].size(), NemesisJob::kBlockElements) << "block " << id;
      for (SlotId slot = 0; slot < NemesisJob::kSlots; ++slot) {
        const NemesisBook::Block& block = books[slot].blocks[id];
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
            const auto found =
                static_cast<int64_t>(values[id][NemesisJob::Counter(slot, modulus, remainder)]);
            few += std::max<int64_t>(0, least[remainder] - found);
            many += std::max<int64_t>(0, found - most[remainder]);
          }
          EXPECT_EQ(few, 0) << "lost of slot " << slot << " in block " << id << " modulo " << size;
          EXPECT_EQ(many, 0) << "doubled of slot " << slot << " in block " << id << " modulo "
                             << size;
          if (modulus == 0) lost += few, doubled += many;
        }
      }
    }
    int64_t acknowledged = 0;
    int64_t rolled_back = 0;
    std::printf("slot processes steps acknowledged rolled back restored lives\n");
    for (SlotId slot = 0; slot < NemesisJob::kSlots; ++slot) {
      const NemesisBook& book = books[slot];
      std::printf("%4d %9ld %5ld %12ld %11ld %14ld\n", slot, book.incarnations, book.steps,
                  book.acknowledged, book.rolled_back, book.restored_lives);
      acknowledged += book.acknowledged;
      rolled_back += book.rolled_back;
      for (const std::string& broken : book.broken_promises) ADD_FAILURE() << broken;
    }
    std::printf(
        "(slot, step, block): acknowledged %ld, told to be rolled back %ld, lost beyond "
        "that %ld, doubled %ld; never answered %ld\n",
        acknowledged, rolled_back, lost, doubled, unknown);
    if (GetParam().level != DurabilitySpec::CHECKPOINT) {
      EXPECT_EQ(rolled_back, 0);
    }
  }

  const absl::Duration length_ = absl::Seconds(10);
  uint64_t random_ = 0;
  absl::Duration began_;
  std::vector<Blow> deck_;
  std::unique_ptr<NemesisCluster> cluster_;
};

TEST_P(NemesisTest, WhatIsAcknowledgedIsAppliedOnceAndTheOthersGoOn) {
  const auto pushes = FromEnvironment<int64_t>("TORCHPS_NEMESIS_PUSHES", 0);
  ASSERT_NO_FATAL_FAILURE(cluster_->AwaitTraining());
  if (GetParam().level == DurabilitySpec::CHECKPOINT) {
    // Before the first one a server has nothing to come back to.
    ASSERT_TRUE(Eventually([this] { return cluster_->StatusOfJob().checkpoint().number() > 0; },
                           kPatience));
  }

  began_ = cluster_->now();
  absl::Duration next_blow = began_;
  absl::Duration next_look = began_;
  const absl::Duration longest = pushes > 0 ? absl::Hours(2) : length_;
  ASSERT_TRUE(Eventually(
      [&] {
        if (!cluster_->Supervise()) return true;
        const absl::Duration now = cluster_->now();
        if (now >= next_blow) {
          cluster_->Strike(NextBlow());
          next_blow = now + absl::Milliseconds(500 + UniformBelow(random_, 1500));
        }
        if (pushes == 0) {
          // On a slow machine longer, until a link has failed.
          const bool waits = GetParam().linked && cluster_->broken_links() == 0;
          return now - began_ >= longest && !waits;
        }
        if (now < next_look) return false;
        next_look = now + absl::Seconds(5);
        return StepsOf(cluster_->Books()) >= pushes;
      },
      longest + kPatience));
  ASSERT_FALSE(HasFailure());
  std::printf("%.1f s of blows\n", absl::ToDoubleSeconds(cluster_->now() - began_));

  // Peace: everybody comes back and pushes again.
  cluster_->Heal();
  const std::vector<NemesisBook> before = cluster_->Books();
  ASSERT_TRUE(Eventually(
      [&] {
        if (!cluster_->Supervise()) return true;
        const std::vector<NemesisBook> books = cluster_->Books();
        for (int i = 0; i < NemesisJob::kSlots; ++i) {
          if (books[i].steps < before[i].steps + 20) return false;
        }
        return true;
      },
      kPatience));
  ASSERT_FALSE(HasFailure());
  cluster_->StopWorkers();
  std::printf("%s\n", cluster_->Tally().c_str());
  const std::vector<NemesisBook> books = cluster_->Books();
  if (GetParam().linked) {
    EXPECT_GT(cluster_->broken_links(), 0);
  }
  Audit(books);
  JudgeStalls(books);
  cluster_->StopServers();
}

INSTANTIATE_TEST_SUITE_P(
    Levels, NemesisTest,
    ::testing::Values(NemesisCase{"Workers", DurabilitySpec::NONE, false},
                      NemesisCase{"Checkpoint", DurabilitySpec::CHECKPOINT, true},
                      NemesisCase{"Log", DurabilitySpec::LOG, true},
                      NemesisCase{"LinkedCheckpoint", DurabilitySpec::CHECKPOINT, true, true},
                      NemesisCase{"LinkedLog", DurabilitySpec::LOG, true, true}),
    [](const ::testing::TestParamInfo<NemesisCase>& info) { return info.param.name; });

}  // namespace
}  // namespace torchps
