#include "torchps/common/process/stop_signal.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <ucontext.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

#include "torchps/common/check.h"

namespace torchps {
namespace {

void AddSignals(sigset_t* mask) {
  sigaddset(mask, SIGTERM);
  sigaddset(mask, SIGINT);
}

// Runs in a thread that a library started before main (OpenBLAS does) and that does not block the
// signals. Blocks the signals in this thread from now on, and sends the signal to the process again
// so that another thread handles it.
void PassOn(int number, siginfo_t*, void* context) {
  AddSignals(&static_cast<ucontext_t*>(context)->uc_sigmask);
  kill(getpid(), number);
}

}  // namespace

StopSignal::StopSignal() {
  sigset_t mask;
  sigemptyset(&mask);
  AddSignals(&mask);
  struct sigaction action = {};
  action.sa_sigaction = &PassOn;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  action.sa_mask = mask;
  TPS_CHECK(sigaction(SIGTERM, &action, nullptr) == 0 && sigaction(SIGINT, &action, nullptr) == 0,
            "cannot handle signals");
  TPS_CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR, "cannot ignore a signal");
  TPS_CHECK(pthread_sigmask(SIG_BLOCK, &mask, nullptr) == 0, "cannot block signals");
  signals_ = signalfd(-1, &mask, SFD_CLOEXEC);
  requests_ = eventfd(0, EFD_CLOEXEC);
  TPS_CHECK(signals_ >= 0 && requests_ >= 0, "cannot make file descriptors for signals");
}

StopSignal::~StopSignal() {
  close(signals_);
  close(requests_);
}

void StopSignal::Request(const std::string& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!reason_.empty()) return;
  reason_ = reason;
  const uint64_t one = 1;
  TPS_CHECK(write(requests_, &one, sizeof(one)) == sizeof(one), "cannot write to an eventfd");
}

std::string StopSignal::Wait() {
  pollfd files[3] = {{signals_, POLLIN, 0}, {requests_, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
  while (true) {
    const int ready = poll(files, watch_standard_input_ ? 3 : 2, -1);
    if (ready < 0) continue;  // interrupted, by a debugger for example
    if (files[0].revents != 0) {
      signalfd_siginfo info;
      if (read(signals_, &info, sizeof(info)) != sizeof(info)) continue;
      return info.ssi_signo == SIGINT ? "interrupted" : "terminated";
    }
    if (files[1].revents != 0) {
      std::lock_guard<std::mutex> lock(mutex_);
      return reason_;
    }
    if (watch_standard_input_ && files[2].revents != 0) {
      char ignored[256];
      if (read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0) return "the launcher went away";
    }
  }
}

}  // namespace torchps
