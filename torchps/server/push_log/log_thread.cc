#include "torchps/server/push_log/log_thread.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace torchps {
namespace {

constexpr absl::Duration kRetry = absl::Seconds(1);
// Interval for checking the clock, which may be simulated.
constexpr absl::Duration kLook = absl::Milliseconds(20);

}  // namespace

LogThread::LogThread(PushLog* log, const Clock* clock, LogLine tell)
    : log_(log), clock_(clock), tell_(std::move(tell)), thread_([this] { Run(); }) {}

LogThread::~LogThread() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stop_.Signal();
  }
  log_->Wake();
  thread_.join();
}

bool LogThread::stopping() {
  MutexLock lock(&mutex_);
  return stopping_;
}

void LogThread::AwaitNextTry() {
  const absl::Duration due = clock_->Now() + kRetry;
  MutexLock lock(&mutex_);
  while (!stopping_ && clock_->Now() < due) stop_.WaitFor(&mutex_, kLook);
}

void LogThread::Run() {
  std::string trouble;
  absl::Duration since;
  while (true) {
    // Read before WriteGroup(). So the last WriteGroup() begins after the stop, and writes all
    // records from before it.
    const bool last = stopping();
    const absl::StatusOr<bool> wrote = log_->WriteGroup();
    if (!wrote.ok()) {
      if (trouble.empty()) since = clock_->Now();
      if (trouble != wrote.status().message()) {
        trouble = std::string(wrote.status().message());
        tell_(absl::StrCat("the push log cannot be written: ", trouble,
                           "; pushes stay unacknowledged, and the server retries every second"));
      }
      if (last) return;
      AwaitNextTry();
      continue;
    }
    // Writing works again also if WriteGroup() had nothing to write, because Flush() on another
    // thread wrote the records.
    if (!trouble.empty()) {
      trouble.clear();
      tell_(absl::StrFormat("writing the push log works again after %.1f s; no change was lost",
                            absl::ToDoubleSeconds(clock_->Now() - since)));
    }
    if (*wrote) continue;
    if (last) return;
    log_->AwaitWork(absl::Seconds(1));
  }
}

}  // namespace torchps
