// Kills one of two processes that share memory in the middle of a push. The other process continues
// or reports an error, and no shared memory is leaked.

#include <dirent.h>
#include <signal.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/fault/shared_memory_job.h"
#include "tests/testing/eventually.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/program.h"
#include "tests/testing/shared_worker.h"

namespace torchps {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

class SharedMemoryProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = NamedSegments();
#ifdef TORCHPS_TSAN
    // Server and test pass memory to each other through Debian's gRPC, which is not instrumented.
    GTEST_SKIP() << "ThreadSanitizer cannot see what gRPC orders";
#endif
  }
  void TearDown() override { EXPECT_EQ(NamedSegments(), before_); }

  // Returns the names of the existing shared memory segments.
  static std::set<std::string> NamedSegments() {
    std::set<std::string> names;
    DIR* const directory = opendir("/dev/shm");
    if (directory == nullptr) return names;
    while (const dirent* const entry = readdir(directory)) names.insert(entry->d_name);
    closedir(directory);
    return names;
  }

 private:
  std::set<std::string> before_;
};

// Returns the number of the process's mappings with a file name that contains `label`.
int Mappings(pid_t pid, const std::string& label) {
  std::ifstream maps(absl::StrCat("/proc/", pid, "/maps"));
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += absl::StrContains(line, label);
  return count;
}

TEST_F(SharedMemoryProcessTest, TheServerReleasesTheMemoryOfAKilledWorker) {
  const ServerProgram server = StartServerProgram();
  SharedWorker healthy(PlainChannel(server.address), SharedMemoryJobHello(0));
  ASSERT_EQ(healthy.Hello(), absl::OkStatus());
  ASSERT_TRUE(healthy.shares());
  ASSERT_EQ(healthy.plain().Initialize(1.0f), absl::OkStatus());
  Program victim({"tests/fault/shared_memory_pusher", server.address, "1"});
  ASSERT_NE(victim.AwaitLine("pushing"), "");
  EXPECT_EQ(Mappings(server.program->pid(), "test-gradients"), 2);
  // The victim pushes all the time, so this kills it in the middle of a push.
  kill(victim.pid(), SIGKILL);
  EXPECT_EQ(victim.AwaitExit(), 128 + SIGKILL);
  Step step = 0;
  EXPECT_TRUE(Eventually(
      [&] {
        EXPECT_TRUE(healthy.Push(++step).ok());
        return Mappings(server.program->pid(), "test-gradients") == 1;
      },
      kPatience));
  ASSERT_EQ(healthy.Pull(step), absl::OkStatus());
  const auto status = healthy.plain().Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(status->slot(0).shared_memory());
  EXPECT_FALSE(status->slot(1).shared_memory());
}

TEST_F(SharedMemoryProcessTest, AWorkerSharesMemoryWithTheServerThatReplacesAKilledOne) {
  ServerProgram server = StartServerProgram();
  SharedWorker worker(PlainChannel(server.address), SharedMemoryJobHello(0));
  ASSERT_EQ(worker.Hello(), absl::OkStatus());
  ASSERT_EQ(worker.plain().Initialize(1.0f), absl::OkStatus());
  ASSERT_EQ(worker.Pull(0), absl::OkStatus());
  std::atomic<Step> acknowledged{0};
  absl::Status failure;
  std::thread pushing([&] {
    while (failure.ok()) {
      failure = worker.Push(acknowledged.load() + 1).status();
      if (failure.ok()) ++acknowledged;
    }
  });
  EXPECT_TRUE(Eventually([&] { return acknowledged.load() > 3; }, kPatience));
  kill(server.program->pid(), SIGKILL);
  pushing.join();
  EXPECT_EQ(failure.code(), absl::StatusCode::kUnavailable) << failure;
  // The server's memory is still mapped, and Read() returns only complete blocks.
  for (const BlockRange& block : worker.plain().blocks()) {
    std::vector<float> values(block.length);
    const std::optional<Version> version = worker.Read(block.id, values.data());
    if (!version.has_value()) continue;
    EXPECT_GE(*version, acknowledged.load());
    for (const float value : values) ASSERT_EQ(value, 1.0f) << "block " << block.id;
  }
  EXPECT_NE(server.program->AwaitExit(), 0);

  server = StartServerProgram();
  SharedWorker again(PlainChannel(server.address), SharedMemoryJobHello(0));
  ASSERT_EQ(again.Hello(), absl::OkStatus());
  EXPECT_TRUE(again.shares());
  ASSERT_EQ(again.plain().Initialize(1.0f), absl::OkStatus());
  EXPECT_TRUE(again.Push(1).ok());
}

}  // namespace
}  // namespace torchps
