#include "torchps/server/coordinator/state_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/common/process/failpoint.h"

namespace torchps {

StateWriter::StateWriter(Options options)
    : options_(std::move(options)), has_state_(options_.has_state) {
  thread_ = std::thread([this] { Run(); });
}

void StateWriter::Hold(uint64_t revision, uint64_t synced, Answers answers) {
  Kept kept;
  {
    MutexLock lock(&mutex_);
    if (!stopping_ && (revision > stored_ || synced > synced_)) {
      wanted_ = std::max(wanted_, revision);
      wanted_synced_ = std::max(wanted_synced_, synced);
      held_.push_back({revision, synced, std::move(answers)});
      changed_.Signal();
      return;
    }
    if (stopping_) kept = WhatIsKept(absl::UnavailableError("the coordinator is shutting down"));
  }
  for (const Answer& give : answers) give(kept);
}

void StateWriter::Run() {
  absl::Duration last_sync = options_.clock->Now();
  while (true) {
    bool sync = false;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && held_.empty()) {
        if (synced_ >= wanted_) {
          changed_.Wait(&mutex_);
          continue;
        }
        // Spurious wakeups only cause an early sync.
        changed_.WaitFor(&mutex_, options_.pause);
        if (!stopping_ && held_.empty()) {
          sync = true;
          break;
        }
      }
      if (stopping_) break;
      const absl::Duration now = options_.clock->Now();
      sync = sync || wanted_synced_ > synced_ || now - last_sync >= options_.pause;
      if (sync) last_sync = now;
    }
    Store(sync);
  }
  Store(/*sync=*/true);
}

void StateWriter::Store(bool sync) {
  bool needed = false;
  {
    MutexLock lock(&mutex_);
    needed = sync ? wanted_ > synced_ : wanted_ > stored_;
  }
  absl::Status status;
  CoordinatorState state;
  if (needed) {
    state = options_.snapshot();
    status = options_.store->Write(state, sync);
    ReachFailpoint(Failpoint::kStateKept);
  }
  std::string line;
  Kept kept;
  Answers answers;
  {
    MutexLock lock(&mutex_);
    if (needed && status.ok()) {
      stored_ = std::max(stored_, state.revision());
      if (sync) {
        synced_ = std::max(synced_, state.revision());
        has_state_ = has_own_state_ = true;
      }
      if (std::exchange(failing_, false)) line = "the coordinator saves its state again";
    }
    kept = WhatIsKept(status);
    if (!status.ok() && !std::exchange(failing_, true)) {
      line = kept.job.ok()
                 ? absl::StrCat("cannot save the coordinator's state: ", status.message(),
                                "; the job continues, but cannot start or finish until this is "
                                "fixed")
                 : std::string(kept.job.message());
    }
    for (Held& held : std::exchange(held_, {})) {
      // After a successful write, answers that need a later revision or a sync keep waiting.
      if (status.ok() && (held.revision > stored_ || held.synced > synced_)) {
        held_.push_back(std::move(held));
        continue;
      }
      answers.insert(answers.end(), std::make_move_iterator(held.answers.begin()),
                     std::make_move_iterator(held.answers.end()));
    }
  }
  if (!line.empty()) options_.log(line);
  if (needed && sync && status.ok()) options_.synced(state.revision());
  for (const Answer& give : answers) give(kept);
}

StateWriter::Kept StateWriter::WhatIsKept(const absl::Status& status) const {
  Kept kept;
  if (!status.ok() && !has_state_) {
    kept.job = absl::UnavailableError(absl::StrCat(
        "the job cannot start: cannot save the coordinator's state: ", status.message()));
  }
  if (!status.ok() && !has_own_state_) {
    kept.incarnations =
        has_state_ ? absl::UnavailableError(absl::StrCat(
                         "the coordinator has restarted and cannot save its state yet, so new "
                         "workers must wait: ",
                         status.message()))
                   : kept.job;
  }
  return kept;
}

void StateWriter::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace torchps
