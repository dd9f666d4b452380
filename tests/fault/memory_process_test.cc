// Measures the resident memory of an overloaded ps_server. The operating system's figure includes
// memory of gRPC and the allocator, not only the frames that the server counts.

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/program.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/client/parameter_client.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/mutex.h"
#include "torchps/common/stop_latch.h"
#include "torchps/common/types.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kBlockElements = kMib / sizeof(float);
constexpr int kBlocks = 32;
constexpr int kWorkers = 32;
constexpr Step kPushes = 2;

// Upper bound for the resident memory: kStateShare times the counted state, plus kBeside. A tenth
// of the state allows for memory that belongs to the model but is not counted.
// torchps/server/server.h states kBeside for 1 MiB blocks and 32 workers.
constexpr double kStateShare = 1.1;
constexpr int64_t kBeside = 96 * kMib;
// The part of kBeside for frames that are being received or applied
// (Server::Options::receive_bytes).
constexpr int64_t kReceive = 16 * kMib;

JobHarness::Options Model() {
  JobHarness::Options model;
  model.trained = kBlocks * kBlockElements;
  model.block_elements = kBlockElements;
  model.workers = kWorkers;
  // Uses the network, because a server's mappings of worker memory are not its own memory. The
  // lease outlasts the test, because these workers do not renew it.
  model.job =
      "consistency { staleness_bound: -1 } membership { lease_seconds: 3600 } "
      "wire { shared_memory: false }";
  return model;
}

// Returns the process's peak resident memory.
int64_t PeakResidentBytes(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  int64_t kilobytes = 0;
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> kilobytes;
  }
  return kilobytes * 1024;
}

class MemoryProcessTest : public ::testing::Test {
 protected:
  // Returns a client with a new connection that said Hello.
  std::unique_ptr<ParameterClient> Enter(const std::string& address, SlotId slot) {
    const HelloRequest hello = JobHarness::Hello(Model());
    ParameterClient::Options options;
    options.servers = {ConnectToServer(/*index=*/0, address)};
    options.layout = *DecodeLayout(hello.layout());
    options.job = hello.job();
    options.block_map =
        *BlockMap::Create(options.layout, options.job.wire().block_bytes(), /*servers=*/1);
    options.job_id = hello.job_id();
    options.slot = slot;
    options.incarnation = hello.incarnation();
    options.clock = &clock_;
    options.stop = &stop_;
    auto worker = *ParameterClient::Create(std::move(options));
    const absl::StatusOr<Step> start = worker->Hello();
    EXPECT_TRUE(start.ok()) << start.status();
    return worker;
  }

  SteadyClock clock_;
  StopLatch stop_;
};

TEST_F(MemoryProcessTest, AnOverloadedServerStaysBelowTheMemoryBound) {
#if defined(TORCHPS_ASAN) || defined(TORCHPS_TSAN)
  GTEST_SKIP() << "most of the memory would be the sanitizer's";
#endif
  PrepareGrpcProcess();
  const ServerProgram server = StartServerProgram({"--threads=1", "--slow=20"});
  ASSERT_NE(server.address, "");
  std::vector<std::unique_ptr<ParameterClient>> workers;
  for (SlotId slot = 0; slot < kWorkers; ++slot) workers.push_back(Enter(server.address, slot));
  // The gradient of each push, and the initial values. The client does not change them, so all
  // workers share one vector.
  const std::vector<float> gradient(kBlocks * kBlockElements, 1.0f);
  ASSERT_EQ(workers.front()->Initialize(gradient), absl::OkStatus());

  // Locked until all threads have started, so that they push at the same time.
  Mutex start;
  start.Lock();
  std::vector<std::thread> threads;
  for (const auto& worker : workers) {
    threads.emplace_back([&] {
      { MutexLock wait(&start); }
      for (Step step = 1; step <= kPushes; ++step) {
        const absl::StatusOr<PushResult> push =
            worker->Push(step, /*weight=*/1, gradient, /*averaged=*/{});
        ASSERT_TRUE(push.ok()) << push.status();
        EXPECT_EQ(push->verdicts.accepted() + push->verdicts.scaled(), kBlocks);
      }
    });
  }
  start.Unlock();
  for (std::thread& thread : threads) thread.join();

  PlainWorker observer(PlainChannel(server.address), JobHarness::Hello(Model()));
  const absl::StatusOr<ServerStatus> status = observer.Status();
  ASSERT_TRUE(status.ok()) << status.status();
  constexpr int64_t kApplied = kWorkers * kPushes;
  EXPECT_EQ(status->min_version(), kApplied);
  EXPECT_EQ(status->max_version(), kApplied);
  EXPECT_EQ(status->verdicts().accepted() + status->verdicts().scaled(), kApplied * kBlocks);
  EXPECT_EQ(status->verdicts().acknowledged(), kApplied * kBlocks);
  ASSERT_EQ(status->state_bytes(), kBlocks * kMib);
  // The pushes used all bytes that the server allows for received frames.
  EXPECT_EQ(status->receive_bytes_peak(), kReceive);

  const int64_t peak = PeakResidentBytes(server.program->pid());
  const auto ceiling =
      static_cast<int64_t>(kStateShare * static_cast<double>(status->state_bytes())) + kBeside;
  std::printf("peak: %.1f MiB resident, of at most %.1f MiB\n", static_cast<double>(peak) / kMib,
              static_cast<double>(ceiling) / kMib);
  EXPECT_GT(peak, kBlocks * kMib) << "the model alone needs more";
  EXPECT_LE(peak, ceiling);
}

}  // namespace
}  // namespace torchps
