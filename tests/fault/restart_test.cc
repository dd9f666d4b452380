// Restarts servers from the last checkpoint while workers push. No push is applied twice, and the
// lost pushes are exactly those reported to the workers, by slot, step and block.
// TORCHPS_RESTART_SECONDS sets how long each case pushes.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/fault/integer_pusher.h"
#include "tests/fault/integer_rig.h"
#include "tests/testing/checkpoint_driver.h"
#include "torchps/client/parameter_client.h"
#include "torchps/common/clock.h"
#include "torchps/common/hash.h"
#include "torchps/server/server.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/transport/push_segments.h"

namespace torchps {
namespace {

constexpr int kServers = IntegerRig::kServers;
constexpr int kSlots = IntegerRig::kSlots;
constexpr int64_t kTrained = IntegerRig::kTrained;
constexpr int64_t kAveraged = IntegerRig::kAveraged;

struct RestartCase {
  const char* name;
  ConsistencySpec::Mode mode;
  int staleness_bound;
  bool shared_memory;
  // Gradients are copied from a device over a link.
  bool linked = false;
};

// State that one slot recorded.
struct SlotBook {
  std::vector<Step> acknowledged;
  int64_t applied = 0;
  std::map<BlockId, std::set<Step>> lost;
  uint64_t told_blocks = 0;
  uint64_t told_pushes = 0;
  std::vector<std::string> said;
  absl::Status failure;
};

class RestartTest : public ::testing::TestWithParam<RestartCase> {
 protected:
  static void SetUpTestSuite() { PrepareGrpcProcess(); }

  void SetUp() override {
    directory_ = absl::StrCat(testing::TempDir(), "/restart_", GetParam().name);
    servers_.resize(kServers);
    addresses_.assign(kServers, "127.0.0.1:0");
    for (int i = 0; i < kServers; ++i) StartServer(i);
  }

  // Simulates a process that is restarted with the same arguments: the same port and directory.
  void StartServer(int i) {
    Server::Options options;
    options.listen = addresses_[i];
    options.clock = &rig_.clock();
    options.seed = ++incarnations_;
    options.dir = directory_;
    auto server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    servers_[i] = *std::move(server);
    addresses_[i] = servers_[i]->address();
  }

  std::unique_ptr<ParameterClient> MakeClient(SlotId slot, SlotBook* book, PushSegment* segment) {
    ParameterClient::Options options = rig_.ClientOptions(slot, addresses_);
    options.push_segment = segment;
    if (book != nullptr) {
      options.on_rolled_back = [book](BlockId block, const StepSet::Run& run) {
        for (Step step = run.first; step <= run.last; ++step) book->lost[block].insert(step);
      };
      options.log = [book](const std::string& line) { book->said.push_back(line); };
    }
    auto client = ParameterClient::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  void Train(SlotId slot, ParameterClient& client, PushSegment* segment, SlotBook& book) {
    const bool synchronous = GetParam().mode == ConsistencySpec::SYNC;
    CachedVersions held;
    IntegerPusher::Options options;
    options.rig = &rig_;
    options.client = &client;
    options.slot = slot;
    options.segment = segment;
    if (GetParam().linked) {
      options.link.emplace();
      options.link->seed = kSeed + static_cast<uint64_t>(slot);
    }
    IntegerPusher pusher(options);
    const auto heartbeat = IntegerRig::KeepAlive(client);
    Step step = 0;
    // The last step begins after the last restart, so each slot learns of all lost pushes.
    for (bool is_last = false; !is_last;) {
      is_last = done_;
      const auto pulled = pusher.Pull(step, &held);
      if (!pulled.ok()) {
        book.failure = pulled.status();
        return;
      }
      if (synchronous) step = std::max(step, pulled->min_clock);
      ++step;
      const auto pushed = pusher.Push(step);
      if (!pushed.ok()) {
        book.failure = pushed.status();
        return;
      }
      book.acknowledged.push_back(step);
      book.applied += pushed->verdicts.accepted();
    }
    const RollbackAccounting::Lost lost = client.TakeRolledBack();
    book.told_blocks = lost.blocks;
    book.told_pushes = lost.pushes;
    client.Leave().IgnoreError();
  }

  static constexpr uint64_t kSeed = 20261121;

  IntegerRig rig_{GetParam().mode, GetParam().staleness_bound, /*lease_seconds=*/5};
  std::string directory_;
  uint64_t incarnations_ = kSeed;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::atomic<bool> done_{false};
};

TEST_P(RestartTest, RestartedServersReportExactlyTheLostPushes) {
  double seconds = 3;
  if (const char* wish = std::getenv("TORCHPS_RESTART_SECONDS"); wish != nullptr) {
    ASSERT_TRUE(absl::SimpleAtod(wish, &seconds)) << wish;
  }
  std::printf("case %s, seed %lu\n", GetParam().name, kSeed);

  std::vector<SlotBook> accounting(kSlots);
  std::vector<std::unique_ptr<PushSegment>> segments(kSlots);
  std::vector<std::unique_ptr<ParameterClient>> clients;
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    if (GetParam().shared_memory) {
      auto segment = PushSegment::Create(rig_.layout(), /*buffers=*/GetParam().linked ? 2 : 1);
      ASSERT_TRUE(segment.ok()) << segment.status();
      segments[slot] = *std::move(segment);
    }
    clients.push_back(MakeClient(slot, &accounting[slot], segments[slot].get()));
    ASSERT_TRUE(clients.back()->Hello().ok());
  }
  ASSERT_TRUE(clients[0]->Initialize(std::vector<float>(kTrained + kAveraged, 0.0f)).ok());
  CheckpointDriver::Options driving;
  driving.job = rig_.job();
  driving.layout = rig_.layout();
  driving.job_id = rig_.job_id();
  driving.addresses = addresses_;
  CheckpointDriver checkpoints(std::move(driving));
  ASSERT_TRUE(checkpoints.Take().ok());

  std::vector<std::thread> threads;
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    threads.emplace_back(
        [&, slot] { Train(slot, *clients[slot], segments[slot].get(), accounting[slot]); });
  }
  // The seed determines the order of events, but not their timing.
  uint64_t random = kSeed;
  int kills = 0;
  uint64_t attempts = 1;
  const absl::Duration until = rig_.clock().Now() + absl::Seconds(seconds);
  const absl::Duration give_up = until + absl::Seconds(60);
  // On a slow machine this loop continues after `until`, until there were enough restarts and
  // checkpoints.
  while (rig_.clock().Now() < until ||
         ((kills < 8 || checkpoints.taken() < 4) && rig_.clock().Now() < give_up)) {
    // Take() fails until the first worker has said Hello, because the restarted server only then
    // restores the job.
    while (checkpoints.taken() < attempts && rig_.clock().Now() < give_up) {
      if (!checkpoints.Take().ok()) rig_.stop().WaitFor(absl::Milliseconds(5));
    }
    attempts += UniformBelow(random, 3);
    rig_.stop().WaitFor(absl::Milliseconds(20 + UniformBelow(random, 200)));
    // First restarts each server twice in a row. So a server restarts from a state that the
    // previous process only restored.
    const int victim =
        kills < 2 * kServers ? kills / 2 : static_cast<int>(UniformBelow(random, kServers));
    servers_[victim] = nullptr;
    StartServer(victim);
    ASSERT_FALSE(HasFatalFailure());
    ++kills;
  }
  done_ = true;
  for (std::thread& thread : threads) thread.join();
  for (const SlotBook& book : accounting) ASSERT_TRUE(book.failure.ok()) << book.failure;

  std::vector<float> values(kTrained + kAveraged);
  const auto auditor = MakeClient(0, nullptr, nullptr);
  const auto pulled = auditor->Pull(0, /*read_only=*/true, absl::MakeSpan(values));
  ASSERT_TRUE(pulled.ok()) << pulled.status();

  // Compares the servers' ledgers with the slots' records.
  int64_t applied = 0;
  uint64_t lost = 0;
  size_t pushes = 0;
  for (int server = 0; server < kServers; ++server) {
    const ServerStatus status = IntegerRig::GetStatus(addresses_[server]);
    EXPECT_TRUE(status.durability().has_directory());
    EXPECT_GT(status.durability().checkpoint(), 0u);
    for (const LedgerEntryStatus& row : status.ledger()) {
      applied += static_cast<int64_t>(row.applied());
      if (GetParam().mode == ConsistencySpec::SYNC) continue;
      const SlotBook& book = accounting[row.slot()];
      const auto lost_here = book.lost.find(row.block());
      const size_t lost_steps = lost_here == book.lost.end() ? 0 : lost_here->second.size();
      EXPECT_EQ(row.applied() + lost_steps, book.acknowledged.size())
          << "slot " << row.slot() << " block " << row.block();
    }
  }
  int64_t acknowledged = 0;
  for (const SlotBook& book : accounting) {
    std::set<Step> lost_steps;
    uint64_t lost_blocks = 0;
    for (const auto& [block, steps] : book.lost) {
      lost_blocks += steps.size();
      lost_steps.insert(steps.begin(), steps.end());
    }
    EXPECT_EQ(book.told_blocks, lost_blocks);
    EXPECT_EQ(book.told_pushes, lost_steps.size());
    EXPECT_FALSE(book.said.empty());
    lost += lost_blocks;
    acknowledged += book.applied;
    pushes += book.acknowledged.size();
  }
  EXPECT_EQ(applied + static_cast<int64_t>(lost), acknowledged);
  EXPECT_GT(checkpoints.taken(), 3u);
  EXPECT_GT(lost, 0u) << "no restart lost a push, so the test checked nothing";
  std::printf(
      "%d restarts, %lu checkpoints, %zu pushes, %ld blocks acknowledged, %lu rolled back\n", kills,
      checkpoints.taken(), pushes, acknowledged, lost);
  std::printf("slot 0 logged: %s\n", accounting[0].said.front().c_str());
  if (GetParam().mode == ConsistencySpec::SYNC) return;

  std::vector<int64_t> expected(kTrained);
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    for (const Step step : accounting[slot].acknowledged) {
      const std::vector<int> gradient = IntegerRig::Gradient(slot, step);
      for (const BlockRange& block : rig_.block_map().blocks()) {
        if (block.averaged) continue;
        const auto lost_here = accounting[slot].lost.find(block.id);
        if (lost_here != accounting[slot].lost.end() && lost_here->second.count(step) > 0) continue;
        for (int64_t i = block.offset; i < block.offset + block.length; ++i) {
          expected[i] -= gradient[i];
        }
      }
    }
  }
  int64_t wrong = 0;
  for (int64_t i = 0; i < kTrained; ++i) wrong += values[i] != static_cast<double>(expected[i]);
  EXPECT_EQ(wrong, 0)
      << "elements differ from the sum of the acknowledged gradients that were not lost";
}

INSTANTIATE_TEST_SUITE_P(
    Restarts, RestartTest,
    ::testing::Values(RestartCase{"AsyncUnbounded", ConsistencySpec::ASYNC, -1, false},
                      RestartCase{"AsyncBounded", ConsistencySpec::ASYNC, 2, false},
                      RestartCase{"AsyncSharedMemory", ConsistencySpec::ASYNC, -1, true},
                      RestartCase{"Sync", ConsistencySpec::SYNC, 0, false},
                      RestartCase{"LinkedAsyncBounded", ConsistencySpec::ASYNC, 2, false, true},
                      RestartCase{"LinkedAsyncSharedMemory", ConsistencySpec::ASYNC, -1, true,
                                  true}),
    [](const ::testing::TestParamInfo<RestartCase>& info) { return info.param.name; });

TEST(ServerStartTest, RefusesToStartWithServerIncarnationZero) {
  const SteadyClock clock;
  Server::Options options;
  options.clock = &clock;
  options.seed = 0;
  const auto server = Server::Start(options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(server.status().message(), "seed is 0; expected the server incarnation");
}

}  // namespace
}  // namespace torchps
