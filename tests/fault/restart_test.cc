// Servers that die and come back from their last checkpoint while workers push: nothing is doubled,
// and what is lost is exactly what the workers were told, per slot, step and block.
//
// Gradients are small integers and the learning rate is 1, so that sums of floats are exact and one
// lost or doubled block shows. TORCHPS_RESTART_SECONDS says how long each case pushes.

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
#include "common/block_map.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/split_mix64.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/grpc_process.h"
#include "proto/job_spec.h"
#include "proto/layout_codec.h"
#include "server/server.h"
#include "tests/testing/checkpoint_driver.h"
#include "tests/testing/plain_worker.h"
#include "worker/heartbeat.h"
#include "worker/parameter_client.h"
#include "worker/push_segment.h"
#include "worker/server_channel.h"
#include "worker/stop_latch.h"

namespace torchps {
namespace {

constexpr int kServers = 2;
constexpr int kSlots = 3;
constexpr int64_t kTrained = 4096;
constexpr int64_t kAveraged = 600;
constexpr int64_t kBlockBytes = 2048;

struct RestartCase {
  const char* name;
  ConsistencySpec::Mode mode;
  int staleness_bound;
  bool shared_memory;
};

// What one slot knows by its own books.
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
    const RestartCase& test_case = GetParam();
    directory_ = absl::StrCat(testing::TempDir(), "/restart_", test_case.name);
    const bool synchronous = test_case.mode == ConsistencySpec::SYNC;
    JobSpec job;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("name: 'restart' workers: ", kSlots, " model { name: 'integers' } ",
                     "optimizer { sgd {} learning_rate: 1 } consistency { mode: ",
                     ConsistencySpec::Mode_Name(test_case.mode),
                     synchronous ? std::string()
                                 : absl::StrCat(" staleness_bound: ", test_case.staleness_bound),
                     " } wire { block_bytes: ", kBlockBytes, " } membership { lease_seconds: 5 }"),
        &job));
    const auto normal = NormalizeJobSpec(job);
    ASSERT_TRUE(normal.ok()) << normal.status();
    client_options_.job = *normal;
    ModelLayoutProto layout;
    SegmentProto* const weights = layout.add_segment();
    weights->set_name("w");
    weights->add_shape(kTrained);
    weights->set_group(-1);
    SegmentProto* const mean = layout.add_segment();
    mean->set_name("running_mean");
    mean->add_shape(kAveraged);
    mean->set_group(-1);
    mean->set_averaged(true);
    client_options_.layout = *DecodeLayout(layout);
    client_options_.block_map = *BlockMap::Create(client_options_.layout, kBlockBytes, kServers);
    client_options_.job_id = 7;
    client_options_.incarnation = 1;
    client_options_.clock = &clock_;
    client_options_.stop = &stop_;
    servers_.resize(kServers);
    addresses_.assign(kServers, "127.0.0.1:0");
    for (int i = 0; i < kServers; ++i) StartServer(i);
  }

  // As a process would be that is started again with the same arguments: same port, same directory.
  void StartServer(int i) {
    Server::Options options;
    options.listen = addresses_[i];
    options.clock = &clock_;
    options.seed = ++lives_;
    options.dir = directory_;
    auto server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    servers_[i] = *std::move(server);
    addresses_[i] = servers_[i]->address();
  }

  std::unique_ptr<ParameterClient> MakeClient(SlotId slot, SlotBook* book, PushSegment* segment) {
    ParameterClient::Options options = client_options_;
    options.slot = slot;
    options.push_segment = segment;
    if (book != nullptr) {
      options.on_rolled_back = [book](BlockId block, const StepSet::Run& run) {
        for (Step step = run.first; step <= run.last; ++step) book->lost[block].insert(step);
      };
      options.say = [book](const std::string& line) { book->said.push_back(line); };
    }
    for (const std::string& address : addresses_) {
      options.servers.push_back(ConnectToServer(static_cast<int>(options.servers.size()), address));
    }
    auto client = ParameterClient::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  // The gradient named (slot, step): integers from -3 to 3, another gradient for another name.
  static std::vector<int> Gradient(SlotId slot, Step step) {
    uint64_t random = static_cast<uint64_t>(step) * kSlots + static_cast<uint64_t>(slot);
    std::vector<int> gradient(kTrained);
    for (int& element : gradient) element = static_cast<int>(UniformBelow(random, 7)) - 3;
    return gradient;
  }

  void Train(SlotId slot, ParameterClient& client, absl::Span<float> gradients, SlotBook& book) {
    const bool synchronous = GetParam().mode == ConsistencySpec::SYNC;
    std::vector<float> values(kTrained + kAveraged);
    HeldValues held;
    const std::vector<float> averaged(kAveraged, static_cast<float>(slot));
    const Heartbeat heartbeat(
        absl::Milliseconds(200),
        [&client](absl::Duration timeout) {
          client.Renew(timeout);
          return absl::OkStatus();
        },
        [](const absl::Status&) {});
    Step step = 0;
    // The last step begins after the last restart, so that everybody hears of what that has cost.
    for (bool is_last = false; !is_last;) {
      is_last = done_;
      const auto pulled = client.Pull(step, /*read_only=*/false, absl::MakeSpan(values), &held);
      if (!pulled.ok()) {
        book.failure = pulled.status();
        return;
      }
      if (synchronous) step = std::max(step, pulled->floor);
      ++step;
      const std::vector<int> gradient = Gradient(slot, step);
      for (int64_t i = 0; i < kTrained; ++i) gradients[i] = static_cast<float>(gradient[i]);
      const auto pushed = client.Push(step, /*weight=*/1, gradients, averaged);
      if (!pushed.ok()) {
        book.failure = pushed.status();
        return;
      }
      book.acknowledged.push_back(step);
      book.applied += pushed->accepted;
    }
    const RollbackBooks::Lost lost = client.TakeRolledBack();
    book.told_blocks = lost.blocks;
    book.told_pushes = lost.pushes;
    client.Leave().IgnoreError();
  }

  static constexpr uint64_t kSeed = 20261121;

  SteadyClock clock_;
  StopLatch stop_;
  std::string directory_;
  uint64_t lives_ = kSeed;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Server>> servers_;
  ParameterClient::Options client_options_;
  std::atomic<bool> done_{false};
};

TEST_P(RestartTest, NothingIsDoubledAndWhatIsLostIsWhatWasTold) {
  double seconds = 3;
  if (const char* wish = std::getenv("TORCHPS_RESTART_SECONDS"); wish != nullptr) {
    ASSERT_TRUE(absl::SimpleAtod(wish, &seconds)) << wish;
  }
  std::printf("case %s, seed %lu\n", GetParam().name, kSeed);

  std::vector<SlotBook> books(kSlots);
  std::vector<std::unique_ptr<PushSegment>> segments(kSlots);
  std::vector<std::vector<float>> own(kSlots, std::vector<float>(kTrained));
  std::vector<std::unique_ptr<ParameterClient>> clients;
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    if (GetParam().shared_memory) {
      auto segment = PushSegment::Create(client_options_.layout);
      ASSERT_TRUE(segment.ok()) << segment.status();
      segments[slot] = *std::move(segment);
    }
    clients.push_back(MakeClient(slot, &books[slot], segments[slot].get()));
    ASSERT_TRUE(clients.back()->Hello().ok());
  }
  ASSERT_TRUE(clients[0]->Initialize(std::vector<float>(kTrained + kAveraged, 0.0f)).ok());
  CheckpointDriver::Options driving;
  driving.job = client_options_.job;
  driving.layout = client_options_.layout;
  driving.job_id = client_options_.job_id;
  driving.addresses = addresses_;
  CheckpointDriver checkpoints(std::move(driving));
  ASSERT_TRUE(checkpoints.Take().ok());

  std::vector<std::thread> threads;
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    threads.emplace_back([&, slot] {
      Train(slot, *clients[slot],
            segments[slot] != nullptr ? segments[slot]->gradients() : absl::MakeSpan(own[slot]),
            books[slot]);
    });
  }
  // What happens in which order is drawn; when, is up to the machine.
  uint64_t random = kSeed;
  int kills = 0;
  uint64_t attempts = 1;
  const absl::Duration until = clock_.Now() + absl::Seconds(seconds);
  const absl::Duration give_up = until + absl::Seconds(60);
  // On a slow machine longer, until there was enough of everything.
  while (clock_.Now() < until ||
         ((kills < 8 || checkpoints.taken() < 4) && clock_.Now() < give_up)) {
    // A server that was restarted has its job when the first worker greets it.
    while (checkpoints.taken() < attempts && clock_.Now() < give_up) {
      if (!checkpoints.Take().ok()) stop_.WaitFor(absl::Milliseconds(5));
    }
    attempts += UniformBelow(random, 3);
    stop_.WaitFor(absl::Milliseconds(20 + UniformBelow(random, 200)));
    const int victim = static_cast<int>(UniformBelow(random, kServers));
    servers_[victim] = nullptr;
    StartServer(victim);
    ASSERT_FALSE(HasFatalFailure());
    ++kills;
  }
  done_ = true;
  for (std::thread& thread : threads) thread.join();
  for (const SlotBook& book : books) ASSERT_TRUE(book.failure.ok()) << book.failure;

  std::vector<float> values(kTrained + kAveraged);
  const auto auditor = MakeClient(0, nullptr, nullptr);
  const auto pulled = auditor->Pull(0, /*read_only=*/true, absl::MakeSpan(values));
  ASSERT_TRUE(pulled.ok()) << pulled.status();

  // The servers' books against the slots'.
  int64_t applied = 0;
  uint64_t lost = 0;
  size_t pushes = 0;
  for (int server = 0; server < kServers; ++server) {
    const auto stub = ParameterService::NewStub(PlainChannel(addresses_[server]));
    grpc::ClientContext context;
    ServerStatusRequest request;
    request.set_include_ledger(true);
    ServerStatus status;
    ASSERT_TRUE(stub->GetServerStatus(&context, request, &status).ok());
    EXPECT_TRUE(status.durability().has_directory());
    EXPECT_GT(status.durability().checkpoint(), 0u);
    for (const LedgerEntryStatus& row : status.ledger()) {
      applied += static_cast<int64_t>(row.applied());
      if (GetParam().mode == ConsistencySpec::SYNC) continue;
      const SlotBook& book = books[row.slot()];
      const auto lost_here = book.lost.find(row.block());
      const size_t lost_steps = lost_here == book.lost.end() ? 0 : lost_here->second.size();
      EXPECT_EQ(row.applied() + lost_steps, book.acknowledged.size())
          << "slot " << row.slot() << " block " << row.block();
    }
  }
  int64_t acknowledged = 0;
  for (const SlotBook& book : books) {
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
  EXPECT_GT(lost, 0u) << "no restart has lost anything: nothing was tested";
  std::printf(
      "%d restarts, %lu checkpoints, %zu pushes, %ld blocks acknowledged, %lu rolled back\n", kills,
      checkpoints.taken(), pushes, acknowledged, lost);
  std::printf("slot 0 was told: %s\n", books[0].said.front().c_str());
  if (GetParam().mode == ConsistencySpec::SYNC) return;

  std::vector<int64_t> expected(kTrained);
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    for (const Step step : books[slot].acknowledged) {
      const std::vector<int> gradient = Gradient(slot, step);
      for (const BlockRange& block : client_options_.block_map.blocks()) {
        if (block.averaged) continue;
        const auto lost_here = books[slot].lost.find(block.id);
        if (lost_here != books[slot].lost.end() && lost_here->second.count(step) > 0) continue;
        for (int64_t i = block.offset; i < block.offset + block.length; ++i) {
          expected[i] -= gradient[i];
        }
      }
    }
  }
  int64_t wrong = 0;
  for (int64_t i = 0; i < kTrained; ++i) wrong += values[i] != static_cast<double>(expected[i]);
  EXPECT_EQ(wrong, 0) << "elements that are not the sum of what was acknowledged and is not lost";
}

INSTANTIATE_TEST_SUITE_P(
    Restarts, RestartTest,
    ::testing::Values(RestartCase{"AsyncUnbounded", ConsistencySpec::ASYNC, -1, false},
                      RestartCase{"AsyncBounded", ConsistencySpec::ASYNC, 2, false},
                      RestartCase{"AsyncSharedMemory", ConsistencySpec::ASYNC, -1, true},
                      RestartCase{"Sync", ConsistencySpec::SYNC, 0, false}),
    [](const ::testing::TestParamInfo<RestartCase>& info) { return info.param.name; });

}  // namespace
}  // namespace torchps
