#include "torchps/common/process/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "absl/synchronization/notification.h"

namespace torchps {
namespace {

// Runs `body` in a separate thread, because a StopSignal blocks the signals in its thread and never
// unblocks them.
template <typename Body>
void InAThreadOfItsOwn(Body body) {
  std::thread(body).join();
}

TEST(StopSignalTest, CatchesASignalEvenIfOlderThreadsDoNotBlockIt) {
#ifdef TORCHPS_TSAN
  GTEST_SKIP() << "the sanitizer runs handlers after the signal, where they cannot set the mask";
#endif
  // These threads have the process's first signal mask, like the threads that OpenBLAS starts.
  absl::Notification over;
  std::thread early([&] { over.WaitForNotification(); });
  std::thread another([&] { over.WaitForNotification(); });
  InAThreadOfItsOwn([] {
    StopSignal stop;
    ASSERT_EQ(kill(getpid(), SIGTERM), 0);
    EXPECT_EQ(stop.Wait(), "terminated");
    ASSERT_EQ(kill(getpid(), SIGINT), 0);
    EXPECT_EQ(stop.Wait(), "interrupted");
  });
  over.Notify();
  early.join();
  another.join();
}

TEST(StopSignalTest, TheFirstRequestWins) {
  InAThreadOfItsOwn([] {
    StopSignal stop;
    stop.Request("finished");
    stop.Request("too late");
    EXPECT_EQ(stop.Wait(), "finished");
  });
}

// This happens to a server whose parent was killed, if the server logs during its last checkpoint.
TEST(StopSignalTest, ABrokenPipeDoesNotEndTheProcess) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  InAThreadOfItsOwn([&] {
    const StopSignal stop;
    EXPECT_EQ(write(ends[1], "x", 1), -1);
    EXPECT_EQ(errno, EPIPE);
  });
  close(ends[1]);
}

TEST(StopSignalTest, TheEndOfStandardInputStops) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
  close(ends[1]);
  InAThreadOfItsOwn([] {
    StopSignal stop;
    stop.WatchStandardInput();
    EXPECT_EQ(stop.Wait(), "the launcher went away");
  });
  close(ends[0]);
}

}  // namespace
}  // namespace torchps
