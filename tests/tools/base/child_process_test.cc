#include "torchps/tools/base/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/tools/testing.h"
#include "torchps/tools/base/interrupt.h"

namespace torchps {
namespace {

using Stream = ChildProcess::Stream;
using Lines = std::vector<std::string>;

std::unique_ptr<ChildProcess> StartShell(const std::string& script, bool stop_by_stdin = false) {
  auto child = ChildProcess::Start({{"sh", "-c", script}, "child", stop_by_stdin});
  EXPECT_TRUE(child.ok()) << child.status();
  return *std::move(child);
}

// Collects the output lines of a child.
struct Listener {
  Lines out;
  Lines error;

  ChildProcess::LineSink Sink() {
    return [this](Stream stream, absl::string_view line) {
      (stream == Stream::kOut ? out : error).emplace_back(line);
    };
  }
  template <typename Condition>
  void Listen(ChildProcess& child, Condition until) {
    while (!until()) {
      WaitForActivity({&child}, -1, absl::Minutes(1));
      child.Collect(Sink());
    }
  }
  void ListenToTheEnd(ChildProcess& child) {
    Listen(child, [&] { return !child.running(); });
  }
  void ListenToFirstLine(ChildProcess& child) {
    Listen(child, [&] { return !out.empty(); });
  }
};

void Stop(ChildProcess& child, absl::Duration grace, int wake_fd = -1, Lines* said = nullptr) {
  const SteadyClock clock;
  StopChildren({&child}, wake_fd, grace, clock,
               [&](const ChildProcess&, Stream, absl::string_view line) {
                 if (said != nullptr) said->emplace_back(line);
               });
}

TEST(ChildProcessTest, ReturnsOutputAndErrorsLineByLine) {
  const auto child = StartShell("echo one; echo two; echo oops >&2; printf unfinished");
  Listener listener;
  listener.ListenToTheEnd(*child);
  EXPECT_EQ(listener.out, (Lines{"one", "two", "unfinished"}));
  EXPECT_EQ(listener.error, (Lines{"oops"}));
  EXPECT_EQ(child->exit_code(), 0);
}

TEST(ChildProcessTest, KeepsOutputBeyondThePipeSize) {
  const auto child = StartShell("seq 1 50000");
  Listener listener;
  listener.ListenToTheEnd(*child);
  ASSERT_EQ(listener.out.size(), 50000u);
  EXPECT_EQ(listener.out.back(), "50000");
}

TEST(ChildProcessTest, ReadingAnEndlessWriterReturns) {
  const auto child = StartShell("exec yes");
  Listener listener;
  listener.ListenToFirstLine(*child);
  int lines = 0;
  child->Collect([&](Stream, absl::string_view) {
    // Reads as slowly as the child writes, so that more output is always pending.
    WaitForActivity({child.get()}, -1, absl::Minutes(1));
    if (++lines == 1000 * 1000) child->Kill();
  });
  EXPECT_LT(lines, 1000 * 1000);
  EXPECT_TRUE(child->running());
  Stop(*child, absl::Minutes(1));
}

TEST(ChildProcessTest, AddsMissingVariablesToTheEnvironment) {
  ASSERT_EQ(setenv("TORCHPS_TEST_INHERITED", "ours", 1), 0);
  ASSERT_EQ(unsetenv("TORCHPS_TEST_LACKING"), 0);
  ChildProcess::Options options;
  options.command = {"sh", "-c", "echo $TORCHPS_TEST_INHERITED $TORCHPS_TEST_LACKING"};
  options.name = "child";
  options.environment = {"TORCHPS_TEST_INHERITED=theirs", "TORCHPS_TEST_LACKING=given"};
  const auto child = ChildProcess::Start(options);
  ASSERT_TRUE(child.ok()) << child.status();
  Listener listener;
  listener.ListenToTheEnd(**child);
  EXPECT_EQ(listener.out, Lines{"ours given"});
}

TEST(ChildProcessTest, DescribesExitCodes) {
  const std::vector<std::pair<int, std::string>> kReasons = {
      {1, "exited with code 1"},
      {2, "exited with code 2 (a flag or a job field is not valid)"},
      {3, "exited with code 3 (a server did not answer)"},
      {4, "exited with code 4 (refused: another job, model or protocol)"},
      {5, "exited with code 5 (a data file is missing, truncated or damaged)"},
      {6, "exited with code 6 (the port to listen on is taken)"},
      {77, "exited with code 77"},
  };
  for (const auto& [code, reason] : kReasons) {
    const auto child = StartShell("exit " + std::to_string(code));
    Listener().ListenToTheEnd(*child);
    EXPECT_EQ(child->exit_code(), code);
    EXPECT_EQ(child->ExitReason(), reason);
  }
}

TEST(ChildProcessTest, DescribesSignals) {
  const auto child = StartShell("kill -SEGV $$");
  Listener().ListenToTheEnd(*child);
  EXPECT_EQ(child->exit_code(), 128 + SIGSEGV);
  EXPECT_EQ(child->ExitReason(), "was ended by signal 11 (Segmentation fault)");
}

TEST(ChildProcessTest, MissingProgramFailsAtOnce) {
  const absl::Status status = ChildProcess::Start({{"/nowhere/ps_server"}, "server 0"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "cannot start /nowhere/ps_server: No such file or directory");
}

TEST(ChildProcessTest, NonExecutableFileFailsAtOnce) {
  const TestFolder folder;
  const std::string path = folder.WriteFile("plain", "text");
  const absl::Status status = ChildProcess::Start({{path}, "server 0"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
}

TEST(ChildProcessTest, StopsAChildByClosingItsInput) {
  const auto child = StartShell("echo ready; cat; exit 9", /*stop_by_stdin=*/true);
  Listener listener;
  listener.ListenToFirstLine(*child);
  child->AskToStop();
  listener.ListenToTheEnd(*child);
  EXPECT_EQ(child->exit_code(), 9);
}

TEST(ChildProcessTest, StopRequestLetsTheChildEndItself) {
  const auto child =
      StartShell("trap 'echo bye; exit 3' TERM; echo ready; while :; do read -r line; done");
  Listener listener;
  listener.ListenToFirstLine(*child);
  Lines said;
  Stop(*child, absl::Minutes(1), -1, &said);
  EXPECT_EQ(said, (Lines{"bye"}));
  EXPECT_EQ(child->exit_code(), 3);
}

TEST(ChildProcessTest, KillsAChildAfterTheGracePeriod) {
  const auto child = StartShell("trap '' TERM; echo ready; exec cat");
  Listener listener;
  listener.ListenToFirstLine(*child);
  Stop(*child, absl::ZeroDuration());
  EXPECT_EQ(child->exit_code(), 128 + SIGKILL);
}

TEST(ChildProcessTest, SecondInterruptKillsAtOnce) {
  const auto child = StartShell("trap '' TERM; echo ready; exec cat");
  Listener listener;
  listener.ListenToFirstLine(*child);
  int wake[2];
  ASSERT_EQ(pipe(wake), 0);
  ASSERT_EQ(write(wake[1], "x", 1), 1);
  Stop(*child, absl::Hours(1), wake[0]);
  EXPECT_EQ(child->exit_code(), 128 + SIGKILL);
  close(wake[0]);
  close(wake[1]);
}

TEST(ChildProcessTest, SecondHangupDoesNotKill) {
  const auto child =
      StartShell("trap 'echo bye; exit 3' TERM; echo ready; while :; do read -r line; done");
  Listener listener;
  listener.ListenToFirstLine(*child);
  const Interrupt interrupt;
  ASSERT_EQ(kill(getpid(), SIGHUP), 0);
  ASSERT_TRUE(WaitForActivity({}, interrupt.fd(), absl::Minutes(1)));
  Stop(*child, absl::Hours(1), interrupt.fd());
  EXPECT_EQ(child->exit_code(), 3);
  // As the second signal, SIGINT kills at once.
  const auto stubborn = StartShell("trap '' TERM; echo ready; exec cat");
  Listener other;
  other.ListenToFirstLine(*stubborn);
  ASSERT_EQ(kill(getpid(), SIGHUP), 0);
  ASSERT_EQ(kill(getpid(), SIGINT), 0);
  Stop(*stubborn, absl::Hours(1), interrupt.fd());
  EXPECT_EQ(stubborn->exit_code(), 128 + SIGKILL);
  char ignored[4096];
  EXPECT_GT(read(interrupt.fd(), ignored, sizeof(ignored)), 0);
}

TEST(InterruptTest, IgnoredHangupDoesNotInterrupt) {
  ASSERT_NE(signal(SIGHUP, SIG_IGN), SIG_ERR);
  {
    const Interrupt interrupt;
    ASSERT_EQ(kill(getpid(), SIGHUP), 0);
    EXPECT_FALSE(WaitForActivity({}, interrupt.fd(), absl::ZeroDuration()));
    ASSERT_EQ(kill(getpid(), SIGTERM), 0);
    EXPECT_TRUE(WaitForActivity({}, interrupt.fd(), absl::ZeroDuration()));
    char ignored[4096];
    EXPECT_GT(read(interrupt.fd(), ignored, sizeof(ignored)), 0);
  }
  ASSERT_NE(signal(SIGHUP, SIG_DFL), SIG_ERR);
}

TEST(ChildProcessTest, KillIncludesTheChildsProcesses) {
  const auto child = StartShell("trap '' TERM; tail -f /dev/null & echo $!; wait");
  Listener listener;
  listener.ListenToFirstLine(*child);
  const pid_t grandchild = std::stoi(listener.out.front());
  // The kill reaches both, because the child leads their process group.
  EXPECT_EQ(getpgid(grandchild), child->pid());
  Stop(*child, absl::ZeroDuration());
  EXPECT_EQ(child->exit_code(), 128 + SIGKILL);
}

TEST(ChildProcessTest, ChildrenDoNotInheritBlockedSignals) {
  sigset_t term, before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, &before);
  const auto child = StartShell("echo ready; exec cat");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  Listener listener;
  listener.ListenToFirstLine(*child);
  Stop(*child, absl::Minutes(1));
  EXPECT_EQ(child->exit_code(), 128 + SIGTERM);
}

TEST(WaitForActivityTest, ReportsAReadableWakeDescriptor) {
  int wake[2];
  ASSERT_EQ(pipe(wake), 0);
  EXPECT_FALSE(WaitForActivity({}, wake[0], absl::ZeroDuration()));
  ASSERT_EQ(write(wake[1], "x", 1), 1);
  EXPECT_TRUE(WaitForActivity({}, wake[0], absl::Minutes(1)));
  close(wake[0]);
  close(wake[1]);
}

}  // namespace
}  // namespace torchps
