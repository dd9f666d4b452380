#include "tools/drill/recovery_watch.h"

#include <utility>

#include "wire/verdict_counts.h"

namespace torchps {
namespace {

// Resolution of the measured times.
constexpr absl::Duration kLook = absl::Milliseconds(10);
constexpr absl::Duration kAnswerTimeout = absl::Seconds(1);

// Restarted servers count from zero.
bool HasApplied(const ServerStatus& status) { return Applied(status.verdicts()) > 0; }

}  // namespace

RecoveryWatch::RecoveryWatch(Connect connect, const Clock& clock)
    : connect_(std::move(connect)), clock_(clock), thread_([this] { Run(); }) {}

RecoveryWatch::~RecoveryWatch() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void RecoveryWatch::OnDeath(int server, absl::Duration now) {
  MutexLock lock(&mutex_);
  watched_.erase(server);
  Recovery recovery;
  recovery.server = server;
  recovery.died_at = now;
  recoveries_.push_back(recovery);
}

void RecoveryWatch::OnReturn(int server, const std::string& address, absl::Duration now) {
  std::shared_ptr<ClusterClient> client = connect_({address});
  MutexLock lock(&mutex_);
  for (size_t i = recoveries_.size(); i-- > 0;) {
    if (recoveries_[i].server != server) continue;
    if (recoveries_[i].listens.has_value()) return;
    recoveries_[i].listens = now - recoveries_[i].died_at;
    watched_[server] = {i, std::move(client)};
    changed_.SignalAll();
    return;
  }
}

std::vector<RecoveryWatch::Recovery> RecoveryWatch::recoveries() const {
  MutexLock lock(&mutex_);
  return recoveries_;
}

void RecoveryWatch::Run() {
  MutexLock lock(&mutex_);
  while (!stopping_) {
    if (watched_.empty()) {
      changed_.Wait(&mutex_);
      continue;
    }
    const std::map<int, Watched> looked_at = watched_;
    mutex_.Unlock();
    std::map<int, absl::Duration> applied;
    for (const auto& entry : looked_at) {
      const absl::StatusOr<ServerStatus> status =
          entry.second.client->GetServerStatus(0, kAnswerTimeout);
      if (status.ok() && HasApplied(*status)) applied[entry.first] = clock_.Now();
    }
    mutex_.Lock();
    for (const auto& entry : applied) {
      const auto found = watched_.find(entry.first);
      // The server may have died again during the call.
      if (found == watched_.end() || found->second.recovery != looked_at.at(entry.first).recovery) {
        continue;
      }
      Recovery& recovery = recoveries_[found->second.recovery];
      recovery.applies = entry.second - recovery.died_at;
      watched_.erase(found);
    }
    if (!stopping_ && !watched_.empty()) changed_.WaitFor(&mutex_, kLook);
  }
}

}  // namespace torchps
