#pragma once

#include <mutex>
#include <string>

namespace torchps {

// Why a process should end: SIGTERM, SIGINT, a launcher that went away, or a word from inside.
//
// Made first thing in main, before any thread, so that every thread leaves the two signals to it;
// threads that libraries begin before main learn to when a signal first reaches them. Whoever read
// this process's output may be gone: that is no reason (SIGPIPE is ignored from then on), for the
// launcher that dies is the one that read it, and the end in good order begins then.
// Request() may be called from any thread; everything else belongs to main's. One per process.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The end of standard input also means stop: a launcher holds the other end, so its children go
  // with it however it dies.
  void WatchStandardInput() { watch_standard_input_ = true; }

  // Ends Wait(), now or when it is called. The first reason counts.
  void Request(const std::string& reason);

  // Blocks until there is a reason and returns it, in words.
  std::string Wait();

 private:
  int signals_ = -1;   // signalfd
  int requests_ = -1;  // eventfd
  bool watch_standard_input_ = false;
  std::mutex mutex_;
  std::string reason_;  // guarded by mutex_
};

}  // namespace torchps
