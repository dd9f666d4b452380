#include "tools/base/interrupt.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <initializer_list>

namespace torchps {
namespace {

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
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

}  // namespace torchps
