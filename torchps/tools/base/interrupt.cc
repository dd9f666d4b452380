#include "torchps/tools/base/interrupt.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <initializer_list>

namespace torchps {
namespace {

// Returns true if SIGHUP is ignored, as under nohup. It must then stay out of the signalfd, which
// reports a blocked signal even if it is ignored.
bool IgnoresHangup() {
  struct sigaction action = {};
  return sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals, number);
  if (!IgnoresHangup()) sigaddset(&signals, SIGHUP);
  return signals;
}

}  // namespace

Interrupt::Interrupt() {
  const sigset_t signals = Signals();
  fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  if (fd_ >= 0) pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

Interrupt::~Interrupt() {
  if (fd_ < 0) return;
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  close(fd_);
}

void Interrupt::ForgetHangup() {
  sigset_t hangup, pending;
  sigemptyset(&hangup);
  sigaddset(&hangup, SIGHUP);
  if (sigpending(&pending) != 0 || sigismember(&pending, SIGHUP) != 1) return;
  const timespec none = {};
  sigtimedwait(&hangup, nullptr, &none);
}

}  // namespace torchps
