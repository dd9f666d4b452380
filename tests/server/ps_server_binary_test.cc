// Tests the ps_server binary: libraries, start, refused flags and shutdown.

#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/completion_queue.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/program.h"
#include "torchps/common/process/command_line.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string GetOutput(const std::string& command) {
  std::FILE* const pipe = popen(command.c_str(), "r");
  std::string output;
  char bytes[4096];
  while (const size_t got = std::fread(bytes, 1, sizeof(bytes), pipe)) output.append(bytes, got);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return output;
}

// Expects that ps_server with these flags exits with `code` and one line that contains `words`.
void ExpectRefusal(std::vector<std::string> flags, ExitCode code, const std::string& words) {
  flags.insert(flags.begin(), "torchps/ps_server");
  Program server(flags);
  EXPECT_EQ(server.AwaitExit(), static_cast<int>(code)) << flags.back();
  EXPECT_THAT(server.out(), ElementsAre()) << flags.back();
  EXPECT_THAT(server.error(), ElementsAre(HasSubstr(words))) << flags.back();
  for (const std::string& line : server.error()) {
    EXPECT_TRUE(absl::StartsWith(line, "ps_server: ")) << line;
    std::printf("%d %s\n", static_cast<int>(code), line.c_str());
  }
}

// Sends SIGTERM while a pull is parked. Expects that the server exits with 0.
void StopUnderAParkedPull() {
  const ServerProgram server = StartServerProgram();
  JobHarness::Options model;
  model.job = "consistency { staleness_bound: 0 }";
  PlainWorker ahead(PlainChannel(server.address), JobHarness::Hello(model));
  HelloRequest hello = JobHarness::Hello(model);
  hello.set_slot(1);
  PlainWorker behind(PlainChannel(server.address), hello);
  ASSERT_TRUE(ahead.Hello().ok());
  ASSERT_TRUE(behind.Hello().ok());
  ASSERT_TRUE(ahead.Initialize(0).ok());
  ASSERT_TRUE(behind.Pull(0).ok());
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const auto parked =
      ahead.stub().AsyncPull(&context, ahead.RequestPull(1), &queue, /*tag=*/nullptr);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  ASSERT_TRUE(Eventually([&] {
    const auto status = behind.Status();
    return status.ok() && status->parked_now() == 1;
  }));

  server.program->AskToStop();
  EXPECT_EQ(server.program->AwaitExit(absl::Seconds(10)), 0);
  EXPECT_EQ(server.program->out().back(), "torchps_server stopped: terminated");
  grpc::Status status;
  parked->Finish(&status, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_FALSE(status.ok()) << "a waiting caller gets the reason";
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

TEST(PsServerBinary, DoesNotLinkTorch) {
  const std::string libraries = GetOutput("ldd torchps/ps_server");
  EXPECT_THAT(libraries, HasSubstr("libgrpc"));
  for (const char* name : {"libtorch", "libc10", "libgomp", "blas", "libmkl"}) {
    EXPECT_FALSE(absl::StrContains(libraries, name)) << name << " in\n" << libraries;
  }
}

TEST(PsServerBinary, IdlesInLessThan40Megabytes) {
  std::vector<absl::Duration> starts;
  for (int i = 0; i < 20; ++i) {
    const absl::Time before = absl::Now();
    const ServerProgram server = StartServerProgram();
    ASSERT_NE(server.address, "");
    starts.push_back(absl::Now() - before);
    int64_t kilobytes = 0;
    std::ifstream status(absl::StrCat("/proc/", server.program->pid(), "/status"));
    for (std::string word; status >> word && kilobytes == 0;) {
      if (word == "VmRSS:") status >> kilobytes;
    }
    EXPECT_GT(kilobytes, 0);
#if !defined(TORCHPS_ASAN) && !defined(TORCHPS_TSAN)
    EXPECT_LT(kilobytes, 40 * 1000);
#endif
    if (i == 0) std::printf("idle: %ld kB resident\n", kilobytes);
  }
  std::sort(starts.begin(), starts.end());
  std::printf("start to ready: median %.1f ms, slowest of 20 %.1f ms\n",
              absl::ToDoubleMilliseconds(starts[10]), absl::ToDoubleMilliseconds(starts[19]));
  // The limit is wide because the machine may be busy. The printed times are the measurement.
  EXPECT_LT(starts[10], absl::Seconds(2));
}

TEST(PsServerBinary, RefusesAPortInUse) {
  const ServerProgram first = StartServerProgram();
  ASSERT_NE(first.address, "");
  ExpectRefusal({absl::StrCat("--listen=", first.address)}, ExitCode::kAddressInUse, first.address);
  PlainWorker worker(PlainChannel(first.address), JobHarness::Hello({}));
  EXPECT_TRUE(worker.Hello().ok());
}

TEST(PsServerBinary, RefusesInvalidFlags) {
  ExpectRefusal({"--listen=0.0.0.0:0"}, ExitCode::kUsage, "--insecure");
  ExpectRefusal({"--listen=127.0.0.1.example.com:0"}, ExitCode::kUsage, "--insecure");
  ExpectRefusal({"--listen=127.0.0.1"}, ExitCode::kUsage, "'127.0.0.1'; expected HOST:PORT");
  ExpectRefusal({"--listen=127.0.0.1:70000"}, ExitCode::kUsage, "65535");
  ExpectRefusal({"--listen=:7000"}, ExitCode::kUsage, "expected HOST:PORT");
  ExpectRefusal({"--threads=-1"}, ExitCode::kUsage, "threads is -1");
  ExpectRefusal({"--threads=two"}, ExitCode::kUsage, "'two'");
  ExpectRefusal({"--lisen=127.0.0.1:0"}, ExitCode::kUsage, "--lisen");
  ExpectRefusal({"--listen"}, ExitCode::kUsage, "needs a value");
  ExpectRefusal({"127.0.0.1:0"}, ExitCode::kUsage, "'127.0.0.1:0' is not a flag");
}

TEST(PsServerBinary, RefusesAnUnusableDirectory) {
  const std::string file = ::testing::TempDir() + "/a_file";
  std::ofstream(file) << "no directory";
  ExpectRefusal({absl::StrCat("--dir=", file)}, ExitCode::kRefused,
                absl::StrCat("--dir=", file, ": ", file, " is a file; expected a directory"));
  ExpectRefusal({absl::StrCat("--dir=", file, "/server")}, ExitCode::kRefused,
                absl::StrCat("cannot create directory ", file, "/server: Not a directory"));
  // This directory exists, but no user can create files in it.
  ExpectRefusal({"--dir=/proc/self/task"}, ExitCode::kData, "--dir=/proc/self/task: cannot ");
}

TEST(PsServerBinary, InsecureAllowsListeningBeyondLoopback) {
  EXPECT_NE(StartServerProgram({"--listen=0.0.0.0:0", "--insecure"}).address, "");
}

TEST(PsServerBinary, ExitsOnSigtermWithAParkedPull) {
  // Repeats the test, because the order of events depends on the scheduler.
  for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(StopUnderAParkedPull());
}

TEST(PsServerBinary, ExitsWhenItsParentDies) {
  Program server({"torchps/ps_server", "--exit_with_parent"}, /*stop_by_stdin=*/true);
  ASSERT_NE(server.AwaitLine("torchps_server ready "), "");
  server.AskToStop();
  EXPECT_EQ(server.AwaitExit(absl::Seconds(10)), 0);
  EXPECT_EQ(server.out().back(), "torchps_server stopped: the launcher went away");
}

TEST(PsServerBinary, RaisesTheOpenFileLimit) {
  const Program server({"/bin/sh", "-c", "ulimit -Sn 256; exec torchps/ps_server"});
  ASSERT_TRUE(Eventually([&] {
    const std::string limits = GetOutput(
        absl::StrCat("awk '/^Max open files/ {print $4, $5}' /proc/", server.pid(), "/limits"));
    const std::vector<std::string> soft_and_hard = absl::StrSplit(limits, absl::ByAnyChar(" \n"));
    return soft_and_hard.size() >= 2 && soft_and_hard[0] != "256" &&
           soft_and_hard[0] == soft_and_hard[1];
  }));
}

TEST(PsServerBinary, HonorsTheUmask) {
  namespace fs = std::filesystem;
  const std::string directory =
      absl::StrCat(std::getenv("TEST_TMPDIR"), "/ps_server_binary_test_", getpid());
  const mode_t umask_before = umask(027);
  const ServerProgram server = StartServerProgram({absl::StrCat("--dir=", directory)});
  umask(umask_before);
  ASSERT_NE(server.address, "");
  JobHarness::Options model;
  model.job = "durability { level: LOG }";
  PlainWorker worker(PlainChannel(server.address), JobHarness::Hello(model));
  ASSERT_TRUE(worker.Hello().ok());
  ASSERT_TRUE(worker.Initialize(0).ok());
  ASSERT_TRUE(worker.Push(1, 1.0f).ok());
  const fs::perms shared = fs::perms::group_read | fs::perms::others_all;
  EXPECT_EQ(fs::status(directory).permissions() & shared, fs::perms::group_read);
  int entries = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    ++entries;
    EXPECT_EQ(entry.status().permissions() & shared, fs::perms::group_read) << entry.path();
  }
  EXPECT_GE(entries, 2) << "the log and its folder";
}

TEST(PsServerBinary, ExitsOnAShutdownCall) {
  const ServerProgram server = StartServerProgram();
  const auto stub = ParameterService::NewStub(PlainChannel(server.address));
  grpc::ClientContext context;
  ShutdownReply reply;
  EXPECT_TRUE(stub->Shutdown(&context, ShutdownRequest(), &reply).ok());
  EXPECT_EQ(server.program->AwaitExit(absl::Seconds(10)), 0);
}

}  // namespace
}  // namespace torchps
