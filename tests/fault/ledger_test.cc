// Tests exactly-once pushes over a network that breaks all the time. For each slot and step, each
// block applies the push at most once, and an acknowledged push exactly once. Some cases compute
// gradients on a device, and the link between device and host may fail. TORCHPS_LEDGER_SECONDS sets
// how long each case pushes.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/fault/integer_pusher.h"
#include "tests/fault/integer_rig.h"
#include "torchps/client/parameter_client.h"
#include "torchps/common/hash.h"
#include "torchps/server/server.h"
#include "torchps/tools/drill/fault_proxy.h"
#include "torchps/transport/grpc_process.h"

namespace torchps {
namespace {

constexpr int kServers = IntegerRig::kServers;
constexpr int kSlots = IntegerRig::kSlots;
constexpr int64_t kTrained = IntegerRig::kTrained;
constexpr int64_t kAveraged = IntegerRig::kAveraged;
// Samples that each slot claims for a gradient. The sum is a power of two, so a mean over the slots
// is also exact.
constexpr int64_t kWeights[kSlots] = {1, 1, 2};

constexpr absl::Duration kPatience = absl::Seconds(60);

enum class Gradients {
  kOnHost,
  kLinked,  // copied from a device over a link
  kBroken,  // like kLinked, but the link fails at times and a new process continues
};

struct LedgerCase {
  const char* name;
  ConsistencySpec::Mode mode;
  absl::Duration reset_period;
  uint64_t cut_within_bytes;
  int seconds;
  Gradients gradients = Gradients::kOnHost;
};

// State that one slot recorded.
struct SlotBook {
  int64_t acknowledged = 0;  // steps answered with OK
  // By block: the number of applied steps, and the last of them.
  std::vector<int64_t> applied;
  std::vector<Step> last_step;
  std::vector<int64_t> weighted_sum = std::vector<int64_t>(kTrained);
  int broken_links = 0;
  int64_t torn = 0;  // blocks that applied an unacknowledged step
  absl::Status failure;
};

class LedgerTest : public ::testing::TestWithParam<LedgerCase> {
 protected:
  static void SetUpTestSuite() { PrepareGrpcProcess(); }

  void SetUp() override {
    const LedgerCase& test_case = GetParam();
    std::printf("case %s, seed %lu\n", test_case.name, kSeed);
    for (int i = 0; i < kServers; ++i) {
      Server::Options server_options;
      server_options.clock = &rig_.clock();
      server_options.seed = kSeed + i;
      auto server = Server::Start(server_options);
      ASSERT_TRUE(server.ok()) << server.status();
      servers_.push_back(*std::move(server));
      FaultProxy::Options proxy_options;
      proxy_options.target = servers_.back()->address();
      proxy_options.reset_period = test_case.reset_period;
      proxy_options.cut_within_bytes = test_case.cut_within_bytes;
      proxy_options.seed = kSeed + i;
      auto proxy = FaultProxy::Start(proxy_options);
      ASSERT_TRUE(proxy.ok()) << proxy.status();
      proxies_.push_back(*std::move(proxy));
    }
  }

  std::unique_ptr<ParameterClient> MakeClient(SlotId slot,
                                              const std::vector<std::string>& addresses,
                                              Incarnation incarnation = 1) {
    ParameterClient::Options options = rig_.ClientOptions(slot, addresses);
    options.incarnation = incarnation;
    auto client = ParameterClient::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  std::unique_ptr<ParameterClient> MakeClientOverProxies(SlotId slot, Incarnation incarnation) {
    return MakeClient(slot, {proxies_[0]->address(), proxies_[1]->address()}, incarnation);
  }

  // Runs the slot's processes, one after another.
  void RunSlot(SlotId slot, Step clock, absl::Duration until,
               std::unique_ptr<ParameterClient> client, SlotBook* book) {
    uint64_t random = kSeed + static_cast<uint64_t>(slot);
    book->applied.resize(rig_.block_map().blocks().size());
    book->last_step.resize(book->applied.size());
    for (Incarnation incarnation = 1;; ++incarnation) {
      IntegerPusher::Options options;
      options.rig = &rig_;
      options.client = client.get();
      options.slot = slot;
      options.weight = kWeights[slot];
      if (GetParam().gradients != Gradients::kOnHost) {
        options.link.emplace();
        options.link->seed = SplitMix64(random);
      }
      if (GetParam().gradients == Gradients::kBroken) {
        // The link fails at one of its first 500 operations, which are about ten steps.
        options.link->fail_at = static_cast<int64_t>(UniformBelow(random, 500));
      }
      Step pushed = 0;
      absl::Status ended;
      {
        IntegerPusher pusher(options);
        const auto heartbeat = IntegerRig::KeepAlive(*client);
        ended = Train(slot, clock, until, &pusher, book, &pushed);
      }
      if (ended.ok()) return;
      const bool is_broken =
          options.link.has_value() &&
          absl::StrContains(ended.message(),
                            absl::StrCat("operation ", options.link->fail_at, " has failed"));
      if (!is_broken) {
        book->failure = ended;
        return;
      }
      ++book->broken_links;
      client = MakeClientOverProxies(slot, incarnation + 1);
      const auto greeted = client->Hello();
      if (!greeted.ok()) {
        book->failure = greeted.status();
        return;
      }
      clock = *greeted;
      // If the clock is below the step, no server knows the step, and the next process pushes it
      // again.
      if (clock >= pushed) EnterTornStep(slot, pushed, book);
    }
  }

  // Pushes until `until`. In SYNC all slots end with the same step, chosen by slot 0: other slots
  // cannot pass a step that slot 0 did not push. Sets `pushed` to the last step that it began to
  // push.
  absl::Status Train(SlotId slot, Step clock, absl::Duration until, IntegerPusher* pusher,
                     SlotBook* book, Step* pushed) {
    const bool synchronous = GetParam().mode == ConsistencySpec::SYNC;
    for (Step step = clock + 1;; ++step) {
      if (synchronous) {
        if (slot == 0 && rig_.clock().Now() >= until) last_step_ = std::min<Step>(last_step_, step);
        if (step > last_step_) return absl::OkStatus();
      } else if (const absl::Duration now = rig_.clock().Now(); now >= until) {
        // On a slow machine the time may end before a link has failed during a push. This slot then
        // continues, for at most kPatience, until that happens.
        const bool waits = GetParam().gradients == Gradients::kBroken && book->torn == 0;
        if (!waits || now >= until + kPatience) return absl::OkStatus();
      }
      if (const auto pulled = pusher->Pull(step - 1); !pulled.ok()) return pulled.status();
      *pushed = step;
      if (const auto done = pusher->Push(step); !done.ok()) return done.status();
      ++book->acknowledged;
      for (const BlockRange& block : rig_.block_map().blocks()) Enter(slot, step, block, book);
    }
  }

  // Records that the block applied the slot's gradient of this step.
  static void Enter(SlotId slot, Step step, const BlockRange& block, SlotBook* book) {
    ++book->applied[block.id];
    book->last_step[block.id] = step;
    if (block.averaged) return;
    const std::vector<int> gradient = IntegerRig::Gradient(slot, step);
    for (int64_t i = block.offset; i < block.offset + block.length; ++i) {
      book->weighted_sum[i] += kWeights[slot] * gradient[i];
    }
  }

  // Records the blocks that applied an unacknowledged step. The servers know that the step's
  // process ended, so they do not apply more of the step.
  void EnterTornStep(SlotId slot, Step step, SlotBook* book) {
    for (const auto& server : servers_) {
      const ServerStatus status = IntegerRig::GetStatus(server->address());
      for (const LedgerEntryStatus& row : status.ledger()) {
        if (row.slot() != slot || row.last_step() != step) continue;
        if (book->last_step[row.block()] == step) continue;
        Enter(slot, step, rig_.block_map().blocks()[row.block()], book);
        ++book->torn;
      }
    }
  }

  static constexpr uint64_t kSeed = 20240608;

  IntegerRig rig_{GetParam().mode, /*staleness_bound=*/-1, /*lease_seconds=*/60};
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<FaultProxy>> proxies_;
  std::atomic<Step> last_step_{INT64_MAX};
};

TEST_P(LedgerTest, AppliesEachAcknowledgedPushExactlyOnce) {
  int seconds = GetParam().seconds;
  if (const char* wish = std::getenv("TORCHPS_LEDGER_SECONDS"); wish != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(wish, &seconds)) << wish;
  }

  // All slots say Hello before the first push, so that each SYNC round contains three slots.
  std::vector<std::unique_ptr<ParameterClient>> clients;
  std::vector<Step> clocks;
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    clients.push_back(MakeClientOverProxies(slot, /*incarnation=*/1));
    const auto clock = clients.back()->Hello();
    ASSERT_TRUE(clock.ok()) << clock.status();
    clocks.push_back(*clock);
  }
  const absl::Status initialized =
      clients[0]->Initialize(std::vector<float>(kTrained + kAveraged, 0.0f));
  ASSERT_TRUE(initialized.ok()) << initialized;

  const absl::Duration until = rig_.clock().Now() + absl::Seconds(seconds);
  std::vector<SlotBook> accounting(kSlots);
  std::vector<std::thread> threads;
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    threads.emplace_back([&, slot] {
      RunSlot(slot, clocks[slot], until, std::move(clients[slot]), &accounting[slot]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const SlotBook& book : accounting) ASSERT_TRUE(book.failure.ok()) << book.failure;
  for (const auto& proxy : proxies_) proxy->Heal();

  // Reads values and ledgers directly, not through the proxies.
  std::vector<float> values(kTrained + kAveraged);
  const auto auditor = MakeClient(0, {servers_[0]->address(), servers_[1]->address()});
  const auto pulled = auditor->Pull(0, /*read_only=*/true, absl::MakeSpan(values));
  ASSERT_TRUE(pulled.ok()) << pulled.status();

  uint64_t duplicates = 0;
  std::printf("%d seconds\nserver slot blocks acknowledged applied/block duplicates resets\n",
              seconds);
  for (int server = 0; server < kServers; ++server) {
    const ServerStatus status = IntegerRig::GetStatus(servers_[server]->address());
    const std::vector<BlockId>& owned = rig_.block_map().owned_by(server);
    std::map<std::pair<BlockId, SlotId>, LedgerEntryStatus> ledger;
    for (const LedgerEntryStatus& row : status.ledger()) ledger[{row.block(), row.slot()}] = row;
    EXPECT_EQ(ledger.size(), owned.size() * kSlots);

    uint64_t applied = 0;
    uint64_t acknowledged = 0;
    for (SlotId slot = 0; slot < kSlots; ++slot) {
      const SlotBook& book = accounting[slot];
      EXPECT_GT(book.acknowledged, 0);
      for (const BlockId block : owned) {
        // A block applies only steps above its last step, and then raises `applied` by one. So if
        // both numbers equal the slot's record, the block applied each recorded step once.
        const LedgerEntryStatus& row = ledger[{block, slot}];
        EXPECT_EQ(row.last_step(), book.last_step[block]) << "block " << block << " slot " << slot;
        EXPECT_EQ(row.applied(), book.applied[block]) << "block " << block << " slot " << slot;
        EXPECT_GE(book.applied[block], book.acknowledged);
        applied += static_cast<uint64_t>(book.applied[block]);
      }
      acknowledged += static_cast<uint64_t>(book.acknowledged) * owned.size();
      std::printf("%6d %4d %6zu %12ld %13lu %10s %6s\n", server, slot, owned.size(),
                  book.acknowledged, ledger[{owned[0], slot}].applied(), "", "");
    }
    EXPECT_EQ(status.verdicts().accepted(), applied);
    EXPECT_EQ(status.verdicts().acknowledged(), acknowledged);
    EXPECT_EQ(status.verdicts().rejected() + status.verdicts().late() + status.verdicts().scaled(),
              0);
    EXPECT_EQ(status.parked_now(), 0);
    std::printf("%6d  all %6zu %12lu %13s %10lu %6lu\n", server, owned.size(),
                status.verdicts().acknowledged(), "", status.verdicts().duplicates(),
                proxies_[server]->resets());
    duplicates += status.verdicts().duplicates();
  }
  EXPECT_GT(duplicates, 0) << "no push was repeated: the faults did not reach the ledger";

  const bool synchronous = GetParam().mode == ConsistencySpec::SYNC;
  const double divisor = synchronous ? 4 : 1;  // the sum of kWeights
  int64_t wrong = 0;
  for (int64_t i = 0; i < kTrained; ++i) {
    int64_t sum = 0;
    for (SlotId slot = 0; slot < kSlots; ++slot) {
      const int64_t weight = synchronous ? 1 : kWeights[slot];
      sum += accounting[slot].weighted_sum[i] / weight;
    }
    wrong += values[i] != -static_cast<double>(sum) / divisor;
  }
  EXPECT_EQ(wrong, 0) << "elements differ from minus the sum of the acknowledged gradients";
  for (int64_t i = kTrained; i < kTrained + kAveraged; ++i) {
    EXPECT_TRUE(values[i] >= 0 && values[i] < kSlots)
        << "not a mean of the slots' values: " << values[i];
  }
  if (GetParam().gradients == Gradients::kBroken) {
    for (SlotId slot = 0; slot < kSlots; ++slot) {
      std::printf("slot %d: %d links failed, with %ld blocks of unacknowledged steps\n", slot,
                  accounting[slot].broken_links, accounting[slot].torn);
      EXPECT_GT(accounting[slot].torn, 0) << "no link failed during a push";
    }
  }
  std::printf("%ld of %ld elements are exactly minus the sum of the acknowledged gradients\n",
              kTrained - wrong, kTrained);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, LedgerTest,
    ::testing::Values(
        LedgerCase{"AsyncResetEvery150ms", ConsistencySpec::ASYNC, absl::Milliseconds(150), 0, 10},
        LedgerCase{"SyncResetEvery150ms", ConsistencySpec::SYNC, absl::Milliseconds(150), 0, 5},
        // Cuts a connection within 80,000 bytes: on average after about four pushes to one server.
        LedgerCase{"AsyncCutAtRandomBytes", ConsistencySpec::ASYNC, absl::InfiniteDuration(), 80000,
                   5},
        LedgerCase{"LinkedAsyncResetEvery150ms", ConsistencySpec::ASYNC, absl::Milliseconds(150), 0,
                   5, Gradients::kLinked},
        LedgerCase{"LinkedSyncResetEvery150ms", ConsistencySpec::SYNC, absl::Milliseconds(150), 0,
                   5, Gradients::kLinked},
        LedgerCase{"LinkedAsyncCutAtRandomBytes", ConsistencySpec::ASYNC, absl::InfiniteDuration(),
                   80000, 5, Gradients::kLinked},
        LedgerCase{"BrokenLinksAsyncCutAtRandomBytes", ConsistencySpec::ASYNC,
                   absl::InfiniteDuration(), 80000, 5, Gradients::kBroken}),
    [](const ::testing::TestParamInfo<LedgerCase>& info) { return info.param.name; });

}  // namespace
}  // namespace torchps
