// Tests a ps_server that reaches its memory limit: RLIMIT_AS, lowered while the server runs. The
// server checks a container's limit in the same way (torchps/common/process/process_limits.h). If
// the kernel kills the process instead, that is a SIGKILL, as in push_log_process_test.cc.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/program.h"
#include "torchps/transport/grpc_process.h"

namespace torchps {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int kSlots = 16;
// The model has 16 MiB, so that receiving pushes of all slots needs much more memory than the idle
// server has.
constexpr int64_t kElements = 16 * kMib / sizeof(float);
constexpr Step kMaxSteps = 200;

JobHarness::Options Model(int64_t elements) {
  JobHarness::Options model;
  model.trained = elements;
  model.block_elements = kMib / sizeof(float);
  model.workers = kSlots;
  model.job =
      "consistency { staleness_bound: -1 } membership { lease_seconds: 3600 } "
      "wire { shared_memory: false } durability { level: LOG }";
  return model;
}

HelloRequest GetHello(SlotId slot) {
  HelloRequest hello = JobHarness::Hello(Model(kElements));
  hello.set_slot(slot);
  hello.set_incarnation(slot + 1);
  return hello;
}

float Gradient(SlotId slot, Step step) { return static_cast<float>(1 + (5 * step + slot) % 7); }

// Returns the size of the process's address space, as RLIMIT_AS counts it.
int64_t AddressSpaceBytes(pid_t pid) {
  int64_t pages = 0;
  std::ifstream(absl::StrCat("/proc/", pid, "/statm")) >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// Limits the address space to the current size plus `more` bytes.
void LimitMemory(pid_t pid, int64_t more) {
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(AddressSpaceBytes(pid) + more);
  ASSERT_EQ(prlimit(pid, RLIMIT_AS, &limit, nullptr), 0);
}

class MemoryLimitProcessTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { PrepareGrpcProcess(); }
  void SetUp() override {
#if defined(TORCHPS_ASAN) || defined(TORCHPS_TSAN)
    GTEST_SKIP() << "a sanitizer needs more address space than the limit allows";
#endif
  }

  ServerProgram Start() {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    return StartServerProgram(
        {absl::StrCat("--dir=", std::getenv("TEST_TMPDIR"), "/", name, "_", getpid())});
  }
};

TEST_F(MemoryLimitProcessTest, RefusesAJobThatExceedsTheMemoryLimit) {
  const ServerProgram server = Start();
  ASSERT_NE(server.address, "");
  LimitMemory(server.program->pid(), 256 * kMib);
  // 16 GiB of values.
  PlainWorker large(PlainChannel(server.address), JobHarness::Hello(Model(int64_t{4} << 30)));
  const absl::Status refused = large.Hello();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("MiB of memory on this server, whose "));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("(ulimit -v)"));
  // The server still runs without a job and accepts a job that fits.
  PlainWorker small(PlainChannel(server.address), GetHello(0));
  EXPECT_EQ(small.Hello(), absl::OkStatus());
  EXPECT_EQ(small.Initialize(0), absl::OkStatus());
}

TEST_F(MemoryLimitProcessTest, ARestartKeepsAcknowledgedPushesAfterMemoryRanOut) {
  ServerProgram server = Start();
  ASSERT_NE(server.address, "");
  std::vector<std::unique_ptr<PlainWorker>> workers;
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    workers.push_back(std::make_unique<PlainWorker>(PlainChannel(server.address), GetHello(slot)));
    ASSERT_EQ(workers.back()->Hello(), absl::OkStatus());
  }
  ASSERT_EQ(workers[0]->Initialize(0), absl::OkStatus());
  ASSERT_TRUE(workers[0]->Push(1, Gradient(0, 1)).ok());
  LimitMemory(server.program->pid(), 0);

  // All slots push at once until the server runs out of memory.
  std::vector<Step> acknowledged(kSlots, 0);
  acknowledged[0] = 1;
  std::vector<std::thread> threads;
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    threads.emplace_back([&, slot] {
      while (acknowledged[slot] < kMaxSteps) {
        const Step step = acknowledged[slot] + 1;
        if (!workers[slot]->Push(step, Gradient(slot, step)).ok()) return;
        acknowledged[slot] = step;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The signal varies, because gRPC's MakeSlice does not check the result of malloc().
  EXPECT_THAT(server.program->AwaitExit(), AnyOf(128 + SIGABRT, 128 + SIGSEGV));
  EXPECT_THAT(server.program->error(), Contains(HasSubstr("refuses this process more memory")));

  server = Start();
  ASSERT_NE(server.address, "");
  double sum = 0;
  Step steps = 0;
  for (SlotId slot = 0; slot < kSlots; ++slot) {
    SCOPED_TRACE(absl::StrCat("slot ", slot));
    PlainWorker worker(PlainChannel(server.address), GetHello(slot));
    ASSERT_EQ(worker.Hello(), absl::OkStatus());
    EXPECT_GE(worker.hello_reply().last_step(), acknowledged[slot]);
    EXPECT_THAT(worker.hello_reply().restored().block_step(),
                Each(testing::Ge(acknowledged[slot])));
    // Repeats the push that the server may have applied without an acknowledgement.
    const Step last = acknowledged[slot] + 1;
    ASSERT_TRUE(worker.Push(last, Gradient(slot, last)).ok());
    steps += last;
    for (Step step = 1; step <= last; ++step) sum += Gradient(slot, step);
  }
  PlainWorker reader(PlainChannel(server.address), GetHello(0));
  ASSERT_EQ(reader.ReadOnlyPull(), absl::OkStatus());
  for (size_t block = 0; block < reader.blocks().size(); ++block) {
    EXPECT_EQ(reader.versions()[block], steps);
    EXPECT_THAT(reader.values()[block], Each(static_cast<float>(-sum)));
  }
}

}  // namespace
}  // namespace torchps
