// Kills the ps_server process at random times, also during a checkpoint, and restarts it with the
// same arguments. Each block is restored as of the step that the server reports.

#include <signal.h>

#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/testing/checkpoint_driver.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/program.h"
#include "torchps/common/hash.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {
namespace {

constexpr int kLives = 12;

float GetGradient(Step step, BlockId block) { return static_cast<float>((step * 7 + block) % 5); }

// Starts a server on the same port with the same directory.
ServerProgram Restart(const std::string& address, const std::string& directory) {
  return StartServerProgram(
      {absl::StrCat("--listen=", address), absl::StrCat("--dir=", directory)});
}

TEST(RestartProcessTest, AKilledServerRestoresEachBlockToTheStepThatItReports) {
  const uint64_t seed = 20261123;
  uint64_t random = seed;
  std::printf("seed %lu\n", seed);
  const std::string directory = absl::StrCat(testing::TempDir(), "/restart_process");
  ServerProgram server = StartServerProgram({absl::StrCat("--dir=", directory)});
  ASSERT_NE(server.address, "");
  const std::string address = server.address;

  JobHarness::Options job;
  job.trained = 4096;
  job.job = "workers: 1 consistency { staleness_bound: -1 }";
  const HelloRequest hello = JobHarness::Hello(job);
  CheckpointDriver::Options driving;
  driving.job = hello.job();
  driving.layout = *DecodeLayout(hello.layout());
  driving.job_id = hello.job_id();
  driving.addresses = {address};
  CheckpointDriver checkpoints(driving);

  PlainWorker first(PlainChannel(address), hello);
  ASSERT_EQ(first.Hello(), absl::OkStatus());
  EXPECT_FALSE(first.hello_reply().has_restored());
  ASSERT_EQ(first.Initialize(0), absl::OkStatus());
  ASSERT_EQ(first.Pull(0), absl::OkStatus());
  ASSERT_EQ(checkpoints.Take(), absl::OkStatus());

  // By block: the steps that may be applied. The outcome of the last step is unknown.
  std::map<BlockId, std::set<Step>> applied;
  Step step = 0;
  size_t lost = 0;
  uint64_t restored_last = 0;
  for (int life = 0; life < kLives; ++life) {
    PlainWorker worker(PlainChannel(address), hello);
    ASSERT_EQ(worker.Hello(), absl::OkStatus());
    ASSERT_EQ(worker.Pull(step), absl::OkStatus());
    if (life > 0) {
      const Restored& restored = worker.hello_reply().restored();
      EXPECT_GE(restored.checkpoint(), checkpoints.taken() > 0 ? 1u : 0u);
      EXPECT_GE(restored.checkpoint(), restored_last);
      restored_last = restored.checkpoint();
      ASSERT_EQ(restored.block_step_size(), static_cast<int>(worker.blocks().size()));
      for (const BlockRange& block : worker.blocks()) {
        std::set<Step>& steps = applied[block.id];
        const Step kept = restored.block_step(static_cast<int>(block.id));
        lost += static_cast<size_t>(std::distance(steps.upper_bound(kept), steps.end()));
        steps.erase(steps.upper_bound(kept), steps.end());
        float expected = 0;
        for (const Step each : steps) expected -= GetGradient(each, block.id);
        for (const float value : worker.values()[block.id]) {
          ASSERT_EQ(value, expected) << "block " << block.id << " in life " << life;
        }
      }
    }
    if (life % 2 == 1) {
      ASSERT_TRUE(checkpoints.AwaitConnected(absl::Seconds(30)));
      ASSERT_EQ(checkpoints.Take(), absl::OkStatus());
    }
    // The thread takes up to a dozen checkpoints during the pushes.
    std::thread taker([&] {
      while (checkpoints.Take().ok()) {
      }
    });
    const absl::Time until = absl::Now() + absl::Milliseconds(UniformBelow(random, 120));
    std::thread killer([&] {
      absl::SleepFor(until - absl::Now());
      kill(server.program->pid(), SIGKILL);
    });
    while (true) {
      ++step;
      // The server may apply a push without the reply arriving.
      for (const BlockRange& block : worker.blocks()) applied[block.id].insert(step);
      const auto pushed =
          worker.PushBlocks(step, [&](BlockId block) { return GetGradient(step, block); });
      if (!pushed.ok()) break;
    }
    killer.join();
    taker.join();
    EXPECT_EQ(server.program->AwaitExit(), 128 + SIGKILL);
    server = Restart(address, directory);
    ASSERT_EQ(server.address, address);
  }
  PlainWorker last(PlainChannel(address), hello);
  ASSERT_EQ(last.Hello(), absl::OkStatus());
  EXPECT_NE(server.program->AwaitError(" MiB) from checkpoint"), "");
  std::printf("%d kills, %ld pushes, %lu checkpoints, %zu blocks reported lost\n", kLives, step,
              checkpoints.taken(), lost);
  EXPECT_GT(lost, 0u);
  EXPECT_GT(restored_last, 1u);
}

}  // namespace
}  // namespace torchps
