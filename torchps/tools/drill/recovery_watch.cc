#include "torchps/tools/drill/recovery_watch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "torchps/transport/status_codec.h"

namespace torchps {

void StallWatch::OnProgress(int worker, absl::Duration now) {
  const auto last = last_progress_.find(worker);
  if (last == last_progress_.end()) {
    last_progress_[worker] = now;
    return;
  }
  const absl::Duration since = std::exchange(last->second, now);
  longest_ = std::max(longest_, now - since);
  std::set<std::string> meanwhile;
  for (const Episode& episode : episodes_) {
    if (episode.ended < since || episode.began > now) continue;
    // The fault explains the stall of a worker that it hit.
    if (episode.hit.count(worker) > 0) return;
    meanwhile.insert(episode.kind);
  }
  for (const std::string& kind : meanwhile) {
    std::optional<absl::Duration>& longest = by_kind_[kind].longest_stall;
    longest = std::max(longest.value_or(absl::ZeroDuration()), now - since);
  }
}

void StallWatch::OnDone(int worker, absl::Duration now) {
  OnProgress(worker, now);
  last_progress_.erase(worker);
}

int StallWatch::Begin(absl::string_view kind, std::set<int> hit, absl::Duration now) {
  ++by_kind_[std::string(kind)].times;
  episodes_.push_back({std::string(kind), std::move(hit), now});
  return static_cast<int>(episodes_.size()) - 1;
}

void StallWatch::End(int fault, absl::Duration now) {
  episodes_[static_cast<size_t>(fault)].ended = now;
}

BackupWatch::BackupWatch(int servers, bool has_log, Connect connect)
    : has_log_(has_log), connect_(std::move(connect)), addresses_(static_cast<size_t>(servers)) {}

void BackupWatch::OnDeath(int server) {
  addresses_[static_cast<size_t>(server)].clear();
  client_ = nullptr;
  // The restarted server counts its progress from zero.
  before_.reset();
}

void BackupWatch::OnLoss(int server) {
  OnDeath(server);
  has_lost_ = true;
}

void BackupWatch::OnReturn(int server, const std::string& address) {
  addresses_[static_cast<size_t>(server)] = address;
}

bool BackupWatch::AreWhole(absl::Duration patience) {
  if (!has_lost_) return true;
  std::optional<std::vector<uint64_t>> now = Look(patience);
  if (!now.has_value()) return false;
  if (!before_.has_value()) {
    before_ = std::move(now);
    return false;
  }
  for (size_t i = 0; i < now->size(); ++i) {
    if ((*now)[i] <= (*before_)[i]) return false;
  }
  has_lost_ = false;
  before_.reset();
  return true;
}

std::optional<std::vector<uint64_t>> BackupWatch::Look(absl::Duration patience) {
  const bool all_listen = std::none_of(addresses_.begin(), addresses_.end(),
                                       [](const std::string& address) { return address.empty(); });
  if (!all_listen) return std::nullopt;
  if (client_ == nullptr) client_ = connect_(addresses_);
  std::vector<uint64_t> far;
  for (size_t i = 0; i < addresses_.size(); ++i) {
    const absl::StatusOr<ServerStatus> status =
        client_->GetServerStatus(static_cast<int>(i), patience);
    if (!status.ok() || status->has_restoring()) return std::nullopt;
    far.push_back(has_log_ ? status->verdicts().acknowledged() : status->durability().checkpoint());
  }
  return far;
}

namespace {

// Resolution of the measured times.
constexpr absl::Duration kLook = absl::Milliseconds(10);
constexpr absl::Duration kAnswerTimeout = absl::Seconds(1);

// Returns true if the server has applied a push since its restart: a new process counts from zero.
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
