// Tests that a thousand joins and leaves at one server do not leak connections, threads, files or
// memory. TORCHPS_JOINS overrides the number.

#include <dirent.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/join_request.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/program.h"
#include "tests/testing/shared_worker.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

// Resources that a process holds.
struct Holdings {
  int files = 0;
  int threads = 0;
  int mappings = 0;
  int64_t resident_kilobytes = 0;
};

int Entries(const std::string& path) {
  int count = 0;
  DIR* const directory = opendir(path.c_str());
  if (directory == nullptr) return -1;
  while (const dirent* const entry = readdir(directory)) count += entry->d_name[0] != '.';
  closedir(directory);
  return count;
}

Holdings GetHoldings(pid_t pid) {
  const std::string process = absl::StrCat("/proc/", pid, "/");
  Holdings holdings;
  holdings.files = Entries(process + "fd");
  holdings.threads = Entries(process + "task");
  std::ifstream maps(process + "maps");
  for (std::string line; std::getline(maps, line);) ++holdings.mappings;
  std::ifstream status(process + "status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") status >> holdings.resident_kilobytes;
  }
  return holdings;
}

void Print(const char* when, const Holdings& holdings) {
  std::printf("%-22s %4d files %3d threads %4d mappings %7ld kB\n", when, holdings.files,
              holdings.threads, holdings.mappings, holdings.resident_kilobytes);
}

// Runs one worker's session over a new connection: joins, shares memory, pushes, pulls, and leaves.
// Every second worker does not say Leave to the parameter service.
void LiveOnce(const std::string& address, int number) {
  JobHarness::Options model;
  model.trained = 16 << 10;
  model.block_elements = 4 << 10;
  model.job = "consistency { staleness_bound: -1 } membership { lease_seconds: 1 }";
  HelloRequest hello = JobHarness::Hello(model);
  const auto channel = PlainChannel(address);
  const auto coordinator = Coordinator::NewStub(channel);
  const JoinRequest join =
      JoinFor(hello, address, /*nonce=*/static_cast<uint64_t>(number) + 1, /*train_samples=*/1000);
  JoinReply joined;
  {
    grpc::ClientContext context;
    ASSERT_EQ(FromGrpcStatus(coordinator->Join(&context, join, &joined)), absl::OkStatus());
  }
  hello.set_slot(joined.slot());
  hello.set_incarnation(joined.incarnation());
  hello.set_job_id(joined.job_id());
  *hello.mutable_job() = joined.job();
  SharedWorker worker(channel, hello);
  ASSERT_EQ(worker.Hello(), absl::OkStatus());
  ASSERT_TRUE(worker.shares());
  if (number == 0) {
    ASSERT_EQ(worker.plain().Initialize(1.0f), absl::OkStatus());
  }
  const Step step = worker.plain().hello_reply().last_step() + 1;
  ASSERT_EQ(worker.Push(step).status(), absl::OkStatus());
  ASSERT_EQ(worker.Pull(step), absl::OkStatus());
  if (number % 2 == 0) {
    ASSERT_EQ(worker.plain().Leave(), absl::OkStatus());
  }
  LeaveJobRequest leave;
  leave.set_slot(joined.slot());
  leave.set_incarnation(joined.incarnation());
  leave.set_reason("seen enough");
  LeaveJobReply left;
  grpc::ClientContext context;
  ASSERT_EQ(FromGrpcStatus(coordinator->LeaveJob(&context, leave, &left)), absl::OkStatus());
}

// Number of threads by which the server may grow: gRPC's pools start another thread if a busy
// machine delays the existing ones.
constexpr int kPoolThreads = 2;

TEST(JoinsAndLeaves, DoNotLeakResources) {
#ifdef TORCHPS_TSAN
  GTEST_SKIP() << "ThreadSanitizer cannot see what gRPC orders";
#endif
  PrepareGrpcProcess();
  int joins = 1000;
  if (const char* const wish = std::getenv("TORCHPS_JOINS"); wish != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(wish, &joins)) << wish;
  }
#ifdef TORCHPS_ASAN
  joins /= 10;
#endif
  const ServerProgram server = StartServerProgram();
  const pid_t pid = server.program->pid();
  // Warms up: thread pools fill and the heap grows to its usual size.
  int number = 0;
  for (; number < joins / 10; ++number) ASSERT_NO_FATAL_FAILURE(LiveOnce(server.address, number));
  // Waits until the number of open files is the same twice in a row. It falls while the server
  // drops workers that did not say Leave.
  Holdings before;
  const auto at_rest = [&](Holdings* holdings) {
    int last = -1;
    return Eventually([&] {
      *holdings = GetHoldings(pid);
      const bool same = holdings->files == last;
      last = holdings->files;
      return same;
    });
  };
  ASSERT_TRUE(at_rest(&before));
  Print("after a tenth", before);
  for (; number < joins; ++number) ASSERT_NO_FATAL_FAILURE(LiveOnce(server.address, number));

  Holdings after;
  // Connections close shortly after the last call.
  EXPECT_TRUE(Eventually([&] {
    after = GetHoldings(pid);
    return after.files <= before.files && after.threads <= before.threads + kPoolThreads &&
           after.mappings <= before.mappings + 4;
  }));
  Print(absl::StrCat("after ", joins).c_str(), after);
  Print("this process", GetHoldings(getpid()));
  EXPECT_LE(after.files, before.files);
  EXPECT_LE(after.threads, before.threads + kPoolThreads);
  EXPECT_LE(after.mappings, before.mappings + 4) << "the heap may grow by a few mappings";
#if !defined(TORCHPS_ASAN)
  // A leak of one kilobyte per join would fail this.
  EXPECT_LT(after.resident_kilobytes, before.resident_kilobytes + 900);
#endif
  EXPECT_EQ(server.program->error().size(), 0u);
}

}  // namespace
}  // namespace torchps
