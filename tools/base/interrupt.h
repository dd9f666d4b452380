#pragma once

namespace torchps {

// Turns SIGINT, SIGTERM and SIGHUP into readable bytes on a descriptor for as long as it lives, so
// that a loop that waits for other things can wait for them too. Blocks these signals in the
// calling thread; create it before any other thread exists, for those inherit the mask. SIGHUP
// stays ignored where the process was started so, by nohup.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Readable once a signal has come; -1 if the system gave none, then signals end the process.
  int fd() const { return fd_; }

  // Takes back a SIGHUP that has come and was not read: a terminal that goes away sends it twice,
  // by its shell and by the kernel, and means it once.
  static void ForgetHangup();

 private:
  int fd_ = -1;
};

}  // namespace torchps
