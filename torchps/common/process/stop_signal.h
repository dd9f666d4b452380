#pragma once

#include <mutex>
#include <string>

namespace torchps {

// Waits for a reason to end this process: SIGTERM, SIGINT, the launcher's exit, or a request from
// within the process.
//
// Construct it first in main, before starting threads, so that all threads inherit the blocked
// signals. A thread that a library started before main blocks the signals when the first signal
// reaches it. The constructor also ignores SIGPIPE: if the launcher that read this process's output
// dies, the process must still shut down cleanly. Request() is thread-safe; call the other
// functions from main's thread. Create at most one per process.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Also treats the end of standard input as a stop request. A launcher holds the other end of the
  // pipe, so this process ends however the launcher dies.
  void WatchStandardInput() { watch_standard_input_ = true; }

  // Makes the current or next call to Wait() return. Only the first reason counts.
  void Request(const std::string& reason);

  // Blocks until there is a reason to stop, and returns it as text.
  std::string Wait();

 private:
  int signals_ = -1;   // signalfd
  int requests_ = -1;  // eventfd
  bool watch_standard_input_ = false;
  std::mutex mutex_;
  std::string reason_;  // guarded by mutex_
};

}  // namespace torchps
