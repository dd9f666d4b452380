#include "torchps/server/backup/backup_replicator.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace torchps {
namespace {

constexpr absl::Duration kRetry = absl::Seconds(1);
// Polling interval for the clock, which may be a fake.
constexpr absl::Duration kLook = absl::Milliseconds(20);
// Maximum sleep of an idle thread.
constexpr absl::Duration kIdle = absl::Seconds(1);

}  // namespace

BackupReplicator::BackupReplicator(Options options, const Kept& kept)
    : options_(std::move(options)), mirror_(options_.mirror) {
  for (const std::string& file : kept.complete) {
    mirror_.Want(file, /*complete=*/true, BackupMirror::Version::kKept);
  }
  for (const std::string& file : kept.others) {
    mirror_.Want(file, /*complete=*/false, BackupMirror::Version::kNew);
  }
  if (options_.has_thread) thread_ = std::thread([this] { Run(); });
}

BackupReplicator::~BackupReplicator() { Stop(); }

void BackupReplicator::Post(Change change) {
  changes_.push_back(std::move(change));
  ++posted_;
  wakes_.Signal();
}

void BackupReplicator::Send(const std::string& file, bool complete, BackupMirror::Version version) {
  MutexLock lock(&mutex_);
  Post([=](BackupMirror& mirror) { mirror.Want(file, complete, version); });
}

void BackupReplicator::KeepOnly(std::vector<std::string> files) {
  MutexLock lock(&mutex_);
  Post([files = std::move(files)](BackupMirror& mirror) { mirror.WantOnly(files); });
}

void BackupReplicator::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  wakes_.Signal();
}

absl::Status BackupReplicator::Keep(const std::vector<std::string>& files, bool complete,
                                    BackupMirror::Version version) {
  const absl::Duration begun = options_.clock->Now();
  uint64_t own = 0;
  {
    MutexLock lock(&mutex_);
    for (const std::string& file : files) {
      Post([=](BackupMirror& mirror) { mirror.Want(file, complete, version); });
      awaited_.insert(file);
      there_.erase(file);
      gone_.erase(file);
    }
    own = posted_;
  }
  if (!options_.has_thread) {
    for (absl::StatusOr<bool> more = true; more.ok() && *more;) more = Step();
  }
  const absl::Duration patience = options_.has_thread ? options_.patience : absl::ZeroDuration();
  MutexLock lock(&mutex_);
  absl::Status outcome;
  while (true) {
    if (abandoned_ || stopping_) {
      outcome = absl::CancelledError("the server stops");
      break;
    }
    if (applied_ >= own) {
      const auto is_there = [this](const std::string& file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return there_.count(file) > 0;
      };
      if (absl::c_all_of(files, is_there)) break;
      const auto gone = absl::c_find_if(
          files, [this](const std::string& file)
                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return gone_.count(file) > 0; });
      if (gone != files.end()) {
        outcome = absl::NotFoundError(absl::StrCat(*gone, " was removed before it was copied"));
        break;
      }
    }
    if (!failure_.ok() && options_.clock->Now() - std::max(begun, failing_since_) >= patience) {
      outcome = absl::UnavailableError(Trouble());
      break;
    }
    changed_.WaitFor(&mutex_, kLook);
  }
  for (const std::string& file : files) awaited_.erase(file);
  return outcome;
}

void BackupReplicator::Abandon() {
  MutexLock lock(&mutex_);
  abandoned_ = true;
  changed_.SignalAll();
}

void BackupReplicator::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    wakes_.Signal();
    changed_.SignalAll();
  }
  options_.mirror.peer->Cancel();
  if (thread_.joinable()) thread_.join();
}

bool BackupReplicator::TakeChanges() {
  std::deque<Change> changes;
  {
    MutexLock lock(&mutex_);
    if (stopping_) return false;
    std::swap(changes, changes_);
    woken_ = false;
  }
  for (const Change& change : changes) change(mirror_);
  return true;
}

absl::StatusOr<bool> BackupReplicator::Step() {
  if (!TakeChanges()) return absl::CancelledError("the server stops");
  uint64_t known = 0;
  {
    MutexLock lock(&mutex_);
    known = posted_ - changes_.size();
  }
  absl::StatusOr<bool> stepped = mirror_.Step();
  {
    MutexLock lock(&mutex_);
    applied_ = known;
  }
  Publish(stepped.status());
  if (mirror_.position() > reported_ && options_.mirror.log != nullptr) {
    reported_ = mirror_.position();
    options_.mirror.log->RaiseCopied(reported_);
  }
  return stepped;
}

bool BackupReplicator::HasStopped() const {
  MutexLock lock(&mutex_);
  return stopping_;
}

void BackupReplicator::Run() {
  while (!HasStopped()) {
    const absl::StatusOr<bool> stepped = Step();
    if (!stepped.ok()) {
      AwaitNextTry();
    } else if (!*stepped) {
      MutexLock lock(&mutex_);
      if (!stopping_ && !woken_ && changes_.empty()) wakes_.WaitFor(&mutex_, kIdle);
    }
  }
}

void BackupReplicator::Publish(const absl::Status& status) {
  std::string line;
  {
    MutexLock lock(&mutex_);
    for (const std::string& file : awaited_) {
      if (mirror_.IsThere(file)) {
        there_.insert(file);
      } else {
        there_.erase(file);
      }
      if (!mirror_.Wants(file)) gone_.insert(file);
    }
    mirror_.CountBytes(&copied_bytes_, &uncopied_bytes_);
    const absl::Duration now = options_.clock->Now();
    // Stop() cancelled the step, which is not a failure.
    if (stopping_) return;
    if (!status.ok() && failure_.ok()) {
      failing_since_ = now;
      line = absl::StrCat("cannot copy this server's files: ", status.message(), "; ",
                          options_.mirror.log != nullptr ? "pushes stay unacknowledged"
                                                         : "no checkpoint is complete",
                          "; retrying every second");
    } else if (status.ok() && !failure_.ok()) {
      line = absl::StrFormat("this server's files are copied again, after %.1f s; no data is lost",
                             absl::ToDoubleSeconds(now - failing_since_));
    }
    failure_ = status;
    changed_.SignalAll();
  }
  if (!line.empty()) options_.tell(line);
}

void BackupReplicator::AwaitNextTry() {
  const absl::Duration due = options_.clock->Now() + kRetry;
  MutexLock lock(&mutex_);
  while (!stopping_ && options_.clock->Now() < due) wakes_.WaitFor(&mutex_, kLook);
}

std::string BackupReplicator::Trouble() const {
  return absl::StrFormat(
      "this server's files could not be copied for %.0f s: %s; %s until that server is "
      "started again, or until the cause is fixed",
      absl::ToDoubleSeconds(options_.clock->Now() - failing_since_), failure_.message(),
      options_.mirror.log != nullptr ? "pushes wait" : "no checkpoint is complete");
}

void BackupReplicator::Describe(DurabilityStatus* status) const {
  MutexLock lock(&mutex_);
  status->set_copied_bytes(copied_bytes_);
  status->set_uncopied_bytes(uncopied_bytes_);
  if (!failure_.ok()) status->set_trouble(Trouble());
}

}  // namespace torchps
