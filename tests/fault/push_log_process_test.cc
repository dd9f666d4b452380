// Tests durability LOG on a real disk. Kills ps_server at random times while two slots push integer
// gradients and repeat each push until it is acknowledged. At the end each block contains each push
// exactly once.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/program.h"
#include "torchps/common/hash.h"
#include "torchps/common/mutex.h"

namespace torchps {
namespace {

constexpr int kSlots = 2;
constexpr int kLives = 12;
constexpr Step kLeastSteps = 30;

float Gradient(SlotId slot, Step step) { return static_cast<float>(1 + (5 * step + slot) % 7); }

// Shares the server's current address and the slots' progress between threads.
class Scene {
 public:
  // Announces a restarted server.
  void Announce(const std::string& address) {
    MutexLock lock(&mutex_);
    address_ = address;
    ++life_;
    changed_.SignalAll();
  }
  // Waits for the next server process after process number `after`. Returns nullopt when the test
  // is over.
  struct Life {
    int number = 0;
    std::string address;
  };
  std::optional<Life> AwaitLife(int after) {
    MutexLock lock(&mutex_);
    while (life_ <= after && !over_) changed_.Wait(&mutex_);
    if (life_ <= after) return std::nullopt;
    return Life{life_, address_};
  }
  bool over() {
    MutexLock lock(&mutex_);
    return over_;
  }
  void End() {
    MutexLock lock(&mutex_);
    over_ = true;
    changed_.SignalAll();
  }
  void CountAcknowledged() {
    MutexLock lock(&mutex_);
    ++acknowledged_;
    changed_.SignalAll();
  }
  int AwaitAcknowledged(int count) {
    MutexLock lock(&mutex_);
    while (acknowledged_ < count) changed_.Wait(&mutex_);
    return acknowledged_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::string address_;
  int life_ = 0;
  bool over_ = false;
  int acknowledged_ = 0;
};

JobHarness::Options Model() {
  JobHarness::Options model;
  model.trained = 40000;
  model.block_elements = 8192;
  model.workers = kSlots;
  model.job = "durability { level: LOG }";
  return model;
}

HelloRequest GetHello(SlotId slot) {
  HelloRequest hello = JobHarness::Hello(Model());
  hello.set_slot(slot);
  hello.set_incarnation(slot + 1);
  return hello;
}

// Pushes as `slot` until the test is over. Returns the number of acknowledged pushes.
Step Work(Scene& scene, SlotId slot) {
  Step acknowledged = 0;
  int life = 0;
  while (const auto next = scene.AwaitLife(life)) {
    life = next->number;
    PlainWorker worker(PlainChannel(next->address), GetHello(slot));
    if (!worker.Hello().ok()) continue;
    EXPECT_GE(worker.hello_reply().last_step(), acknowledged)
        << "the server lost an acknowledged push";
    if (!worker.hello_reply().initialized() && !worker.Initialize(0).ok()) continue;
    if (!worker.ReadOnlyPull().ok()) continue;
    while (!scene.over() || acknowledged < kLeastSteps) {
      const Step step = acknowledged + 1;
      const auto reply = worker.Push(step, Gradient(slot, step));
      if (!reply.ok()) {
        EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
        break;
      }
      acknowledged = step;
      scene.CountAcknowledged();
    }
    if (scene.over() && acknowledged >= kLeastSteps) break;
  }
  return acknowledged;
}

TEST(PushLogProcessTest, AppliesAcknowledgedPushesOnceDespiteKills) {
  const char* const given = std::getenv("TORCHPS_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10)
                                         : static_cast<uint64_t>(absl::ToUnixNanos(absl::Now()));
  std::printf("TORCHPS_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  SCOPED_TRACE(seed);
  uint64_t random = seed;
  const std::string directory =
      absl::StrCat(std::getenv("TEST_TMPDIR"), "/push_log_", getpid(), "_", seed);

  Scene scene;
  std::vector<Step> acknowledged(kSlots, 0);
  std::vector<std::thread> slots;
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    slots.emplace_back([&, slot] { acknowledged[slot] = Work(scene, slot); });
  }
  ServerProgram server;
  int reached = 0;
  uint64_t replayed = 0;
  for (int life = 1; life <= kLives; ++life) {
    server = StartServerProgram({absl::StrCat("--dir=", directory)});
    ASSERT_NE(server.address, "");
    scene.Announce(server.address);
    // Kills the server after 1 to 20 more acknowledgements. The other slot's push and the log's
    // writes may then be at any point.
    reached = scene.AwaitAcknowledged(reached + 1 + static_cast<int>(UniformBelow(random, 20)));
    if (life == kLives) break;
    ASSERT_EQ(kill(server.program->pid(), SIGKILL), 0);
    EXPECT_NE(server.program->AwaitExit(), 0);
  }
  scene.End();
  for (std::thread& slot : slots) slot.join();

  PlainWorker reader(PlainChannel(server.address), GetHello(0));
  ASSERT_TRUE(reader.ReadOnlyPull().ok());
  double sum = 0;
  Step steps = 0;
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    steps += acknowledged[slot];
    for (Step step = 1; step <= acknowledged[slot]; ++step) sum += Gradient(slot, step);
  }
  for (size_t block = 0; block < reader.blocks().size(); ++block) {
    EXPECT_EQ(reader.versions()[block], steps);
    for (const float value : reader.values()[block]) ASSERT_EQ(value, static_cast<float>(-sum));
  }
  const auto status = reader.Status(/*include_ledger=*/true);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->ledger_size(), static_cast<int>(kSlots * reader.blocks().size()));
  for (const LedgerEntryStatus& row : status->ledger()) {
    EXPECT_EQ(row.last_step(), acknowledged[row.slot()]);
    EXPECT_EQ(row.applied(), static_cast<uint64_t>(acknowledged[row.slot()]));
  }
  replayed = status->durability().replayed();
  EXPECT_GT(replayed, 0u);
  std::printf("%d kills, %ld pushes acknowledged, %ld records replayed after the last restart\n",
              kLives - 1, static_cast<long>(steps), static_cast<long>(replayed));
}

}  // namespace
}  // namespace torchps
