#pragma once

namespace torchps {

// Makes SIGINT, SIGTERM and SIGHUP readable from a descriptor while this object lives, so that a
// poll loop can wait for them. Blocks these signals in the calling thread. Create it before any
// other thread, because new threads inherit the signal mask. If the process was started with SIGHUP
// ignored (by nohup), SIGHUP stays ignored.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Becomes readable when a signal arrives. -1 if the system could not create a descriptor; then
  // signals end the process.
  int fd() const { return fd_; }

  // Discards a pending SIGHUP. When a terminal closes, both the shell and the kernel send SIGHUP.
  static void ForgetHangup();

 private:
  int fd_ = -1;
};

}  // namespace torchps
